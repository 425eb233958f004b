/* What the whole page uses: nodes, what the browser keeps, the server and its key. */

const $ = id => document.getElementById(id);

/* ---- nodes ---- */

/* A new element: properties by name, "aria-..." as attributes, then children (nodes or text). */
function element(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name.includes('-')) node.setAttribute(name, value);
        else node[name] = value;
    }
    node.append(...children);
    return node;
}

function svg(tag, attributes = {}, ...children) {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
}

const icon = name =>
    svg('svg', {class: 'icon', 'aria-hidden': 'true'}, svg('use', {href: '#i-' + name}));

const setIcon = (button, name) => button.querySelector('use').setAttribute('href', '#i-' + name);

const iconButton = (name, label, onclick) =>
    element('button', {type: 'button', className: 'icon-button', title: label, 'aria-label': label, onclick},
            icon(name));

/* ---- what the browser keeps ---- */

const CHAT = 'reprise.chat.';

const kept = {
    read(key, otherwise) {
        try {
            return JSON.parse(localStorage.getItem(key)) ?? otherwise;
        } catch {
            return otherwise;
        }
    },
    write(key, value) {
        try {
            localStorage.setItem(key, JSON.stringify(value));
        } catch (e) {
            toast(e.name === 'QuotaExceededError'
                ? 'This browser has no room left: delete or export some chats.'
                : 'This browser does not let the page keep anything.');
        }
    },
    remove(key) {
        try {
            localStorage.removeItem(key);
        } catch { /* nothing was kept */ }
    },
    chats() {
        try {
            return Object.keys(localStorage).filter(k => k.startsWith(CHAT))
                .map(k => kept.read(k)).filter(c => c && c.id && Array.isArray(c.messages));
        } catch {
            return [];
        }
    },
};

/* A chat: {id, title, system, updated, messages}. A message: {role, content} and, for an answer,
   finish ("stop", "length", "stopped" by the person), error (a sentence), figures. */
const chats = new Map(kept.chats().map(c => [c.id, c]));
const runs = new Map(); /* by chat id: what is being answered */
let settings = kept.read('reprise.settings', {});
let current = newChat();

function newChat() {
    const random = crypto.getRandomValues(new Uint32Array(3));
    const id = Array.from(random, n => n.toString(16).padStart(8, '0')).join('');
    return {id, title: '', system: '', updated: Date.now(), messages: []};
}

function saveChat(chat) {
    if (!chats.has(chat.id)) return; /* deleted while its answer came */
    chat.updated = Date.now();
    kept.write(CHAT + chat.id, chat);
}

const titleOf = chat => chat.title || 'New chat';

/* ---- server ---- */

class ServerError extends Error {
    constructor(status, sentence) {
        super(sentence);
        this.status = status;
    }
}

const readKey = () => sessionStorage.getItem('reprise.key') ?? kept.read('reprise.key', '');

/* The server's own sentence, whatever shape it comes in. */
async function sentenceOf(response) {
    const text = await response.text().catch(() => '');
    try {
        const {error} = JSON.parse(text);
        return (typeof error === 'string' ? error : error.message) || text;
    } catch {
        return text.trim().slice(0, 500) || `The server answered ${response.status} ${response.statusText}`;
    }
}

/* `isQuiet`: nobody waits for the answer, so nobody is asked for a key. */
async function api(path, {body, signal, isQuiet} = {}) {
    const headers = {}, key = readKey();
    if (key) headers.Authorization = 'Bearer ' + key;
    if (body) headers['Content-Type'] = 'application/json';
    let response;
    try {
        response = await fetch(path, {method: body ? 'POST' : 'GET', headers, signal,
                                      body: body && JSON.stringify(body)});
    } catch (e) {
        if (e.name === 'AbortError') throw e;
        setTimeout(connect, 1000);
        throw new ServerError(0, 'The server cannot be reached.');
    }
    if (response.ok) return response;
    const error = new ServerError(response.status, await sentenceOf(response));
    if (response.status === 401 && !isQuiet) askForKey(error.message);
    throw error;
}

/* Server-sent events: the data of each. */
async function* eventsOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '', data = [];
    for (;;) {
        const {value, done} = await reader.read();
        if (done) return;
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (const line of lines.map(l => l.replace(/\r$/, ''))) {
            if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
            if (line || !data.length) continue;
            yield data.join('\n');
            data = [];
        }
    }
}

const server = {model: '', defaults: {}, timer: 0};

function showStatus(state, text) {
    $('status').dataset.state = state;
    $('status').firstChild.textContent = text;
}

/* Asks until the server is ready, then who it is. */
async function connect() {
    clearTimeout(server.timer);
    try {
        const health = await fetch('health').catch(() => null);
        if (!health?.ok) {
            showStatus(health ? 'loading' : 'gone', health ? await sentenceOf(health) : 'no server');
            server.timer = setTimeout(connect, 2000);
            return;
        }
        const models = await (await api('v1/models')).json();
        server.model = models.data[0]?.id ?? '';
        showStatus('ready', server.model);
        if (!current.messages.length) showChat();
        const props = await (await api('props')).json();
        server.defaults = props.default_generation_settings ?? {};
    } catch (e) {
        if (e.status !== 404) showStatus('gone', e.message); /* no props: no defaults to show */
    }
    showDefaults();
}

/* ---- API key ---- */

function askForKey(reason) {
    $('key-reason').textContent = reason;
    if ($('key-dialog').open) return;
    $('key').value = '';
    $('key-dialog').showModal();
}

$('key-form').onsubmit = () => {
    const key = $('key').value.trim();
    try {
        sessionStorage.setItem('reprise.key', key);
    } catch { /* kept or not at all */ }
    if ($('key-keep').checked) kept.write('reprise.key', key);
    else kept.remove('reprise.key');
    connect();
    const last = current.messages.at(-1);
    if (last?.error && !last.content) regenerate(current);
};
$('key-cancel').onclick = () => $('key-dialog').close();

