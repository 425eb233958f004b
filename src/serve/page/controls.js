/* ---- composer ---- */

const isSendKey = e => e.key === 'Enter' && !e.shiftKey && !e.isComposing;

function fitInput() {
    $('input').style.height = 'auto';
    $('input').style.height = $('input').scrollHeight + 'px';
    $('send').disabled = !runs.has(current.id) && !$('input').value.trim();
}
$('input').oninput = fitInput;

$('composer').onsubmit = e => {
    e.preventDefault();
    const text = $('input').value.trim();
    if (runs.has(current.id)) return stopCurrent();
    if (!text) return;
    $('input').value = '';
    fitInput();
    send(current, text);
};

function stopCurrent() {
    const run = runs.get(current.id);
    stop(current);
    if (run) endView(run);
}

$('input').onkeydown = e => {
    const isEmpty = !$('input').value, last = current.messages.findLast(m => m.role === 'user');
    if (isSendKey(e)) {
        e.preventDefault();
        if (!runs.has(current.id)) $('composer').requestSubmit();
    } else if (e.key === 'ArrowUp' && isEmpty && last && !runs.has(current.id)) {
        e.preventDefault();
        editMessage(current, last);
    }
};
document.addEventListener('keydown', e => {
    if (e.key !== 'Escape' || document.querySelector('dialog[open]')) return;
    setSide(false);
    stopCurrent();
});

let toastTimer = 0;
function toast(text, label, action) {
    const [line, button] = $('toast').children;
    line.textContent = text;
    button.textContent = label ?? 'Close';
    button.onclick = () => {
        $('toast').hidden = true;
        action?.();
    };
    $('toast').hidden = false;
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => { $('toast').hidden = true; }, 8000);
}

/* ---- settings ---- */

const FIELDS = [
    {name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, hint: '0: always the likeliest'},
    {name: 'top_p', label: 'Top p', min: 0.01, max: 1, step: 0.01, hint: 'share of the likeliest; 1: off'},
    {name: 'top_k', label: 'Top k', min: 0, step: 1, hint: 'so many candidates; 0: off'},
    {name: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01, hint: 'against the likeliest; 0: off'},
    {name: 'max_tokens', label: 'Most tokens', min: 1, step: 1, hint: 'of one answer'},
    {name: 'seed', label: 'Seed', min: 0, step: 1, hint: 'same seed, same answer'},
    {name: 'repetition_penalty', label: 'Repetition penalty', min: 0.01, step: 0.01, hint: '1: off'},
    {name: 'presence_penalty', label: 'Presence penalty', min: -2, max: 2, step: 0.1, hint: '0: off'},
    {name: 'frequency_penalty', label: 'Frequency penalty', min: -2, max: 2, step: 0.1, hint: '0: off'},
];

for (const f of FIELDS) {
    f.input = element('input', {type: 'number', min: f.min, max: f.max ?? '', step: 'any', name: f.name,
                                value: settings[f.name] ?? ''});
    if (f.step === 1) f.input.step = 1;
    f.input.oninput = readSettings;
    $('fields').append(element('label', {}, f.label, f.input, element('small', {}, f.hint)));
}

function readSettings() {
    settings = {};
    for (const {name, input} of FIELDS)
        if (input.value !== '' && input.validity.valid) settings[name] = input.valueAsNumber;
    kept.write('reprise.settings', settings);
}

/* Single precision shows as what was meant: 0.95 and not 0.949999988079071. */
function showDefaults() {
    for (const {name, input} of FIELDS) {
        const value = server.defaults[name];
        input.placeholder = typeof value === 'number' && value >= 0 ? String(Number(value.toPrecision(6))) : '';
    }
}

$('open-settings').onclick = () => {
    $('system').value = current.system;
    $('settings').showModal();
};
$('settings').onclose = () => {
    if ($('system').value === current.system) return;
    current.system = $('system').value;
    saveChat(current);
    showChat();
};
$('reset-settings').onclick = () => {
    for (const {input} of FIELDS) input.value = '';
    readSettings();
};

const THEMES = {auto: 'as the system has it', light: 'light', dark: 'dark'};
function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    setIcon($('theme'), theme);
    $('theme').title = `Theme: ${THEMES[theme]}`;
    $('theme').setAttribute('aria-label', $('theme').title);
}
$('theme').onclick = () => {
    const names = Object.keys(THEMES), now = document.documentElement.dataset.theme;
    const next = names[(names.indexOf(now) + 1) % names.length];
    kept.write('reprise.theme', next);
    setTheme(next);
};

/* ---- live panel ---- */

/* Prometheus text to {name: sum over its labels}. */
function metricsOf(text) {
    const sums = {};
    for (const line of text.split('\n')) {
        const m = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)/.exec(line);
        if (m) sums[m[1]] = (sums[m[1]] ?? 0) + Number(m[2]);
    }
    return sums;
}

const number = (v, digits = 0) => Number.isFinite(v) ? v.toFixed(digits) : '-';
const percent = v => Number.isFinite(v) ? `${(100 * v).toFixed(v > 0 && v < 0.1 ? 1 : 0)} %` : '-';
const share = (part, whole) => whole > 0 ? part / whole : NaN;

/* Each takes the figures now (m), their growth since the last look (d) and its seconds, and gives
   [the large text, the point of the curve, the small text]. */
const TILES = [
    ['Throughput', (m, d, seconds) => {
        const rate = d['vllm:generation_tokens_total'] / seconds;
        return [`${number(rate, rate < 10 ? 1 : 0)} tokens/s`, rate,
                `${number(d['vllm:prompt_tokens_total'] / seconds)} prompt tokens/s`];
    }],
    ['Requests', m => {
        const running = m['vllm:num_requests_running'], waiting = m['vllm:num_requests_waiting'];
        return [`${number(running)} running`, running + waiting, `${number(waiting)} in the queue`];
    }],
    ['KV cache', m => {
        const used = m['vllm:kv_cache_usage_perc'];
        return [percent(used), used, 'of the blocks in use'];
    }],
    ['Prefix hits', (m, d) => {
        const hits = m['vllm:prefix_cache_hits_total'], asked = m['vllm:prefix_cache_queries_total'];
        return [percent(share(hits, asked)), share(d['vllm:prefix_cache_hits_total'],
                d['vllm:prefix_cache_queries_total']), `${number(hits)} tokens found`];
    }],
    ['Replayed', (m, d) => {
        const replays = m['reprise_replays_total'], eager = m['reprise_eager_steps_total'];
        return [percent(share(replays, replays + eager)), share(d['reprise_replays_total'],
                d['reprise_replays_total'] + d['reprise_eager_steps_total']), `${number(eager)} steps eager`];
    }],
].map(([label, figure]) => ({label, figure, points: []}));

for (const tile of TILES) {
    tile.value = element('b', {}, '-');
    tile.note = element('span');
    tile.area = svg('polygon');
    tile.curve = svg('polyline');
    $('tiles').append(element('div', {className: 'tile'},
        element('div', {}, element('span', {}, tile.label), tile.value, tile.note),
        svg('svg', {viewBox: '0 0 100 30', preserveAspectRatio: 'none', 'aria-hidden': 'true'},
            tile.area, tile.curve)));
}

/* The last two minutes; a gap of the figures keeps the height it had. */
function drawCurve(tile, point) {
    const KEPT = 60, points = tile.points;
    points.push(Number.isFinite(point) ? point : points.at(-1) ?? 0);
    if (points.length > KEPT) points.shift();
    const top = Math.max(...points, 1e-9);
    const at = (v, i) => `${(100 * (i + KEPT - points.length) / (KEPT - 1)).toFixed(2)},${(28 - 25 * v / top).toFixed(2)}`;
    const line = points.map(at).join(' ');
    tile.curve.setAttribute('points', line);
    tile.area.setAttribute('points', `${at(0, 0).split(',')[0]},30 ${line} 100,30`);
}

const panel = {timer: 0, before: null, at: 0};

async function look() {
    clearTimeout(panel.timer);
    if ($('panel').hidden) return;
    const PERIOD = 2000;
    if (!document.hidden) await showMetrics();
    panel.timer = setTimeout(look, PERIOD);
}

async function showMetrics() {
    let figures;
    try {
        figures = metricsOf(await (await api('metrics', {isQuiet: true})).text());
    } catch (e) {
        $('panel-note').textContent = e.message;
        $('panel-note').hidden = false;
        return;
    }
    const now = performance.now(), seconds = (now - panel.at) / 1000, growth = {};
    for (const name in figures) growth[name] = figures[name] - (panel.before?.[name] ?? figures[name]);
    panel.before = figures;
    panel.at = now;
    $('panel-note').hidden = true;
    for (const tile of TILES) {
        const [value, point, note] = tile.figure(figures, growth, seconds);
        tile.value.textContent = value;
        tile.note.textContent = note;
        drawCurve(tile, point);
    }
}

function setPanel(isOpen) {
    $('panel').hidden = !isOpen;
    $('open-panel').setAttribute('aria-expanded', isOpen);
    look();
}
$('open-panel').onclick = () => {
    setPanel($('panel').hidden);
    kept.write('reprise.panel', !$('panel').hidden);
};

/* ---- start ---- */

setTheme(kept.read('reprise.theme', 'auto'));
openChat(chats.get(kept.read('reprise.current')) ?? current);
fitInput();
setPanel(kept.read('reprise.panel', false));
window.onpagehide = () => runs.forEach(run => saveChat(run.chat));
connect();
