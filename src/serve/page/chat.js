/* ---- conversation ---- */

const views = new Map(); /* message of the chat that is shown -> its nodes */
let isFollowing = true;  /* the end of the conversation stays in view */

function showFigures(f, finish) {
    const parts = [];
    if (f?.tokens) parts.push(`${f.tokens} tokens`);
    if (f?.rate) parts.push(`${f.rate.toFixed(1)} tokens/s`);
    if (f?.first) parts.push(`first after ${f.first.toFixed(2)} s`);
    if (f?.cached) parts.push(`${f.cached} of ${f.prompt} prompt tokens cached`);
    if (finish === 'length') parts.push('cut at the token limit');
    if (finish === 'stopped') parts.push('stopped');
    return parts.join(', ');
}

function messageView(chat, message) {
    const isUser = message.role === 'user', isLast = message === chat.messages.at(-1);
    const isRunning = runs.get(chat.id)?.message === message;
    const body = element('div', {className: isUser ? 'body' : 'body prose'});
    const copy = iconButton('copy', 'Copy', async () => {
        setIcon(copy, await copyText(message.content) ? 'done' : 'copy');
        setTimeout(() => setIcon(copy, 'copy'), 1500);
    });
    const actions = element('div', {className: 'actions'});
    const node = element('article', {className: 'message ' + message.role,
        'aria-label': isUser ? 'You' : 'Answer'}, body, actions);
    if (isUser) body.textContent = message.content;
    else renderMarkdown(body, message.content);
    if (message.content && !isRunning) actions.append(copy);
    if (isUser) actions.append(iconButton('edit', 'Edit', () => editMessage(chat, message)));
    else if (isLast && !isRunning && !message.error)
        actions.append(iconButton('again', 'Answer again', () => regenerate(chat)));
    const figures = element('span', {className: 'muted figures'});
    if (!isUser) figures.textContent = isRunning ? '' : showFigures(message.figures, message.finish);
    if (!isUser) actions.append(figures);
    node.classList.toggle('is-streaming', isRunning);
    if (message.error) node.insertBefore(failureNode(chat, message, isLast), actions);
    return {node, body, figures};
}

function failureNode(chat, message, isLast) {
    const node = element('div', {className: 'failure', role: 'alert'}, element('p', {}, message.error));
    if (isLast)
        node.append(element('button', {type: 'button', onclick: () => regenerate(chat)}, 'Try again'));
    return node;
}

function welcomeNode() {
    return element('section', {id: 'welcome'}, svg('svg', {'aria-hidden': 'true'}, svg('use', {href: '#i-mark'})),
        element('h2', {}, 'What would you like to know?'),
        element('p', {}, server.model ? `${server.model} answers on this server.` : ''));
}

function systemNode(text) {
    return element('details', {className: 'system muted'},
        element('summary', {}, 'System prompt'), element('p', {}, text));
}

function showChat() {
    views.clear();
    for (const m of current.messages) views.set(m, messageView(current, m));
    const nodes = Array.from(views.values(), v => v.node);
    if (current.system) nodes.unshift(systemNode(current.system));
    if (!current.messages.length) nodes.push(welcomeNode());
    $('log').replaceChildren(...nodes);
    $('title').textContent = titleOf(current);
    document.title = current.title ? `${current.title} - Reprise` : 'Reprise';
    follow(true);
    showRunning();
}

function showRunning() {
    const isRunning = runs.has(current.id);
    $('send').setAttribute('aria-label', isRunning ? 'Stop' : 'Send');
    $('send').disabled = !isRunning && !$('input').value.trim();
    setIcon($('send'), isRunning ? 'stop' : 'send');
    showList();
}

function follow(always) {
    if (always) isFollowing = true;
    if (isFollowing) $('log').scrollTop = $('log').scrollHeight;
}

$('log').onscroll = () => {
    const NEAR = 60; /* pixels; less than two lines of text */
    const rest = $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight;
    isFollowing = rest < NEAR;
    $('down').hidden = isFollowing;
};
$('down').onclick = () => follow(true);

/* Drops what follows the first `n` messages; the person can have it back. */
function cutMessages(chat, n) {
    stop(chat);
    const before = chat.messages;
    chat.messages = before.slice(0, n);
    if (before.length > n + 1)
        toast('Later messages were dropped.', 'Undo', () => {
            stop(chat);
            chat.messages = before;
            saveChat(chat);
            if (chat === current) showChat();
        });
}

function editMessage(chat, message) {
    const view = views.get(message), at = chat.messages.indexOf(message);
    const area = element('textarea', {value: message.content, 'aria-label': 'Edit the message'});
    const done = () => {
        if (!area.value.trim()) return;
        cutMessages(chat, at);
        send(chat, area.value.trim());
    };
    area.onkeydown = e => {
        if (isSendKey(e)) e.preventDefault(), done();
        if (e.key === 'Escape') e.stopPropagation(), showChat();
    };
    view.node.replaceChildren(element('div', {className: 'editor'}, area, element('div', {},
        element('button', {type: 'button', className: 'quiet', onclick: showChat}, 'Cancel'),
        element('button', {type: 'button', className: 'primary', onclick: done}, 'Send'))));
    area.focus();
}

/* ---- asking ---- */

function send(chat, text) {
    if (!chats.has(chat.id)) chats.set(chat.id, chat);
    if (!chat.title) chat.title = text.replace(/\s+/g, ' ').slice(0, 60);
    chat.messages.push({role: 'user', content: text});
    answer(chat);
}

function regenerate(chat) {
    stop(chat);
    if (chat.messages.at(-1)?.role === 'assistant') chat.messages = chat.messages.slice(0, -1);
    if (chat.messages.length) answer(chat);
}

function stop(chat) {
    runs.get(chat.id)?.controller.abort();
    runs.delete(chat.id);
}

/* What the model sees. Failed answers are left out; templates want roles in turn, so neighbours of
   one role become one message. */
function historyOf(chat) {
    const history = chat.system ? [{role: 'system', content: chat.system}] : [];
    for (const {role, content} of chat.messages) {
        if (!content) continue;
        if (history.at(-1)?.role === role) history.at(-1).content += '\n\n' + content;
        else history.push({role, content});
    }
    return history;
}

async function answer(chat) {
    const run = {chat, controller: new AbortController(), began: performance.now(), n: 0, isDrawn: true};
    const body = {...settings, messages: historyOf(chat), stream: true, stream_options: {include_usage: true}};
    if (server.model) body.model = server.model;
    run.message = {role: 'assistant', content: '', finish: 'stopped'};
    chat.messages.push(run.message);
    runs.set(chat.id, run);
    saveChat(chat);
    if (chat === current) showChat();
    try {
        await readAnswer(run, body);
    } catch (e) {
        if (e.name !== 'AbortError') run.message.error = e.message || String(e);
        if (run.message.error) delete run.message.finish;
    }
    if (runs.get(chat.id) === run) runs.delete(chat.id);
    saveChat(chat);
    if (chat === current) endView(run);
    else showList();
}

async function readAnswer(run, body) {
    const response = await api('v1/chat/completions', {body, signal: run.controller.signal});
    let isEnded = false;
    for await (const data of eventsOf(response)) {
        if ((isEnded = data === '[DONE]')) break;
        takeChunk(run, JSON.parse(data));
    }
    if (!isEnded) throw new ServerError(0, 'The connection ended before the answer did.');
}

function takeChunk(run, chunk) {
    const {message} = run, choice = chunk.choices?.[0], text = choice?.delta?.content;
    if (chunk.error) throw new ServerError(0, chunk.error.message ?? String(chunk.error));
    if (text) {
        run.last = performance.now();
        run.first ??= run.last;
        run.n++;
        message.content += text;
    }
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    message.figures = figuresOf(run, chunk.usage);
    draw(run);
    if (!(run.savedAt > performance.now() - 1000)) { /* a reload loses a second at most */
        run.savedAt = performance.now();
        saveChat(run.chat);
    }
}

/* The rate leaves the first token out: it came out of the prompt's own step. */
function figuresOf(run, usage) {
    const tokens = usage?.completion_tokens ?? run.n;
    const seconds = (run.last - run.first) / 1000;
    return {tokens, first: (run.first - run.began) / 1000, rate: seconds > 0 ? (tokens - 1) / seconds : 0,
            prompt: usage?.prompt_tokens, cached: usage?.prompt_tokens_details?.cached_tokens};
}

/* At most once per frame, and for a long answer only so often that most of the time is left for
   what the person does. */
function draw(run) {
    const now = performance.now();
    if (!run.isDrawn || now < (run.drawAfter ?? 0)) return;
    run.isDrawn = false;
    requestAnimationFrame(() => {
        run.isDrawn = true;
        const view = views.get(run.message), began = performance.now();
        if (!view || runs.get(run.chat.id) !== run) return;
        renderMarkdown(view.body, run.message.content);
        view.figures.textContent = showFigures(run.message.figures);
        follow();
        run.drawAfter = performance.now() + 3 * (performance.now() - began);
    });
}

/* The finished message: only its own node is made anew. */
function endView(run) {
    const view = views.get(run.message);
    if (view) {
        const made = messageView(run.chat, run.message);
        renderMarkdown(view.body, run.message.content);
        made.body.replaceWith(view.body);
        view.node.replaceWith(made.node);
        views.set(run.message, {...made, body: view.body});
    }
    $('spoken').textContent = run.message.error ? '' : 'The answer is complete.';
    showRunning();
    follow();
}

/* ---- list of chats ---- */

function openChat(chat) {
    current = chat;
    kept.write('reprise.current', chat.id);
    showChat();
    setSide(false);
    if (matchMedia('(hover: hover)').matches) $('input').focus();
}

function showList() {
    const sorted = [...chats.values()].sort((a, b) => b.updated - a.updated);
    $('chat-list').replaceChildren(...sorted.map(listItem));
}

function listItem(chat) {
    const open = element('button', {type: 'button', className: 'open', title: titleOf(chat),
                                    onclick: () => openChat(chat)}, titleOf(chat));
    const item = element('li', {}, open,
        iconButton('edit', 'Rename', () => renameChat(chat, item)),
        iconButton('save', 'Export', () => exportChat(chat)),
        iconButton('delete', 'Delete', () => deleteChat(chat)));
    if (chat === current) open.setAttribute('aria-current', 'true');
    item.classList.toggle('is-current', chat === current);
    item.classList.toggle('is-running', runs.has(chat.id));
    return item;
}

function renameChat(chat, item) {
    const field = element('input', {value: titleOf(chat), 'aria-label': 'Name of the chat', maxLength: 200});
    const done = isKept => {
        field.onblur = null;
        if (isKept && field.value.trim()) chat.title = field.value.trim();
        saveChat(chat);
        showList();
        if (chat === current) $('title').textContent = titleOf(chat);
    };
    field.onkeydown = e => {
        if (e.key === 'Enter') done(true);
        if (e.key === 'Escape') e.stopPropagation(), done(false);
    };
    field.onblur = () => done(true);
    item.replaceChildren(field);
    field.select();
}

function exportChat(chat) {
    const {title, system, messages} = chat;
    const text = JSON.stringify({title, system, messages, model: server.model}, null, 2);
    const url = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
    const name = titleOf(chat).replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40);
    element('a', {href: url, download: `${name || 'chat'}.json`}).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function deleteChat(chat) {
    stop(chat);
    chats.delete(chat.id);
    kept.remove(CHAT + chat.id);
    if (chat === current) openChat(newChat());
    else showList();
    toast(`"${titleOf(chat)}" was deleted.`, 'Undo', () => {
        chats.set(chat.id, chat);
        saveChat(chat);
        openChat(chat);
    });
}

/* Another tab changed a chat. */
window.onstorage = e => {
    if (!e.key?.startsWith(CHAT)) return;
    const id = e.key.slice(CHAT.length), chat = e.newValue && kept.read(e.key);
    if (runs.has(id)) return;
    if (chat) chats.set(id, chat);
    else chats.delete(id);
    if (id === current.id) openChat(chat || newChat());
    else showList();
};

function setSide(isOpen) {
    $('app').classList.toggle('is-side-open', isOpen);
    $('open-side').setAttribute('aria-expanded', isOpen);
}
$('open-side').onclick = () => {
    setSide(true);
    $('new-chat').focus();
};
$('shade').onclick = () => setSide(false);
$('new-chat').onclick = () => openChat(newChat());

