/* ---- markdown ---- */

/* Text to blocks, blocks to nodes. Every regular expression here takes linear time; nesting and the
   reach of links are bounded, so that no text can hang the page. */
const DEEPEST = 8;
const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t](.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t](.*))?$/;

const indentOf = line => line.length - line.trimStart().length;
const startsBlock = line =>
    FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

function cellsOf(line) {
    const cells = line.trim().replace(/^\|/, '').split(/(?<!\\)\|/);
    if (cells.length > 1 && !cells.at(-1).trim()) cells.pop();
    return cells.map(c => c.trim().replaceAll('\\|', '|'));
}

const isTable = lines => lines[0].includes('|') && lines[1]?.includes('-') && lines[1].includes('|') &&
    cellsOf(lines[1]).every(c => /^:?-+:?$/.test(c)) && cellsOf(lines[0]).length === cellsOf(lines[1]).length;

function takeCode(lines, [, indent, fence, info]) {
    const isEnd = line => {
        const text = line.trim();
        return text.length >= fence.length && indentOf(line) < 4 && text === fence[0].repeat(text.length);
    };
    let n = 1;
    while (n < lines.length && !isEnd(lines[n])) n++;
    const body = lines.slice(1, n).map(l => l.slice(Math.min(indentOf(l), indent.length)));
    return {n: n + 1, kind: 'code', language: info.trim().split(/\s/)[0], text: body.join('\n')};
}

function takeQuote(lines, depth) {
    let n = 1;
    while (n < lines.length && QUOTE.test(lines[n])) n++;
    return {n, kind: 'quote', blocks: blocksOf(lines.slice(0, n).map(l => l.replace(QUOTE, '')), depth + 1)};
}

function takeTable(lines) {
    const align = cellsOf(lines[1]).map(c => c.endsWith(':') ? (c.startsWith(':') ? 'center' : 'right') : '');
    let n = 2;
    while (n < lines.length && lines[n].includes('|') && lines[n].trim()) n++;
    return {n, kind: 'table', align, head: cellsOf(lines[0]), rows: lines.slice(2, n).map(cellsOf)};
}

/* Items of one kind; a line deeper than its item's mark belongs to the item. */
function takeList(lines, first, depth) {
    const base = first[1].length, isOrdered = /\d/.test(first[2]), items = [];
    let n = 0, inner = base + 2;
    for (; n < lines.length; n++) {
        const line = lines[n], m = ITEM.exec(line), indent = indentOf(line);
        const isBlank = !line.trim(), after = isBlank ? lines.slice(n).find(l => l.trim()) : line;
        if (isBlank) {
            if (!after || (indentOf(after) < inner && !ITEM.test(after))) break;
            items.at(-1).push('');
        } else if (m && indent < base + 2) {
            if (/\d/.test(m[2]) !== isOrdered || RULE.test(line)) break;
            items.push([m[3] ?? '']);
            inner = base + 2;
        } else if (indent >= inner) {
            items.at(-1).push(line.slice(Math.min(indent, base + first[2].length + 1)));
        } else if (!lines[n - 1].trim() || startsBlock(line)) {
            break;
        } else {
            items.at(-1).push(line.trim());
        }
    }
    return {n, kind: 'list', start: isOrdered ? parseInt(first[2], 10) : null,
            items: items.map(i => blocksOf(i, depth + 1))};
}

function takeParagraph(lines) {
    let n = 1;
    while (n < lines.length && lines[n].trim() && !startsBlock(lines[n]) && !isTable(lines.slice(n, n + 2))) n++;
    return {n, kind: 'paragraph', text: lines.slice(0, n).map(l => l.trim()).join('\n')};
}

function takeBlock(lines, depth) {
    let m;
    if ((m = FENCE.exec(lines[0]))) return takeCode(lines, m);
    if ((m = HEADING.exec(lines[0])))
        return {n: 1, kind: 'heading', level: m[1].length, text: (m[2] ?? '').replace(/ #+ *$/, '').trim()};
    if (RULE.test(lines[0])) return {n: 1, kind: 'rule'};
    if (depth < DEEPEST && QUOTE.test(lines[0])) return takeQuote(lines, depth);
    if (depth < DEEPEST && (m = ITEM.exec(lines[0]))) return takeList(lines, m, depth);
    if (isTable(lines)) return takeTable(lines);
    return takeParagraph(lines);
}

function blocksOf(lines, depth = 0) {
    const blocks = [];
    for (let at = 0; at < lines.length;) {
        if (!lines[at].trim()) {
            at++;
            continue;
        }
        const block = takeBlock(lines.slice(at), depth);
        block.source = lines.slice(at, at + block.n).join('\n');
        at += block.n;
        blocks.push(block);
    }
    return blocks;
}

/* Only schemes that cannot run anything here; a relative address would be this server's. */
function safeUrl(text) {
    try {
        const url = new URL(text);
        return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
    } catch {
        return null;
    }
}

const MARKS = [['**', 'strong'], ['__', 'strong'], ['~~', 'del'], ['*', 'em'], ['_', 'em']];
const isWord = c => c !== undefined && /[\p{L}\p{N}]/u.test(c);

/* Where the mark that opens at `at` is closed, or -1. `hopeless` remembers marks that nothing
   further on closes. */
function closingOf(text, at, mark, hopeless) {
    const from = at + mark.length;
    if (hopeless.has(mark) || !text[from] || /\s/.test(text[from])) return -1;
    if (mark[0] === '_' && isWord(text[at - 1])) return -1;
    for (let end = text.indexOf(mark, from + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
        if (/\s/.test(text[end - 1]) || text[end - 1] === '\\') continue;
        if (mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark)) continue;
        if (mark[0] === '_' && isWord(text[end + mark.length])) continue;
        return end;
    }
    hopeless.add(mark);
    return -1;
}

/* [text](address "title") at `at`: {label, url, end}, or null. */
function linkAt(text, at) {
    const REACH = 2000;
    let depth = 0, close = -1;
    for (let i = at; i < text.length && i < at + REACH && close < 0; i++) {
        if (text[i] === '\\') i++;
        else if (text[i] === '[') depth++;
        else if (text[i] === ']' && --depth === 0) close = i;
    }
    if (close < 0 || text[close + 1] !== '(') return null;
    const m = /^\(\s?<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)?)>?(?:\s"[^"]*")?\s?\)/
        .exec(text.slice(close + 1, close + REACH));
    return m && {label: text.slice(at + 1, close), url: m[1], end: close + 1 + m[0].length};
}

const anchor = (url, ...children) =>
    element('a', {href: url, target: '_blank', rel: 'noopener noreferrer nofollow'}, ...children);

/* What stands at `at`: {node, end}, or null for plain text. */
function inlineAt(text, at, depth, hopeless) {
    const c = text[at];
    if (c === '\n') return {node: element('br'), end: at + 1};
    if (c === '\\' && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? ''))
        return {node: text[at + 1], end: at + 2};
    if (c === '`') {
        let n = 1;
        while (text[at + n] === '`') n++;
        const mark = '`'.repeat(n), end = hopeless.has(mark) ? -1 : text.indexOf(mark, at + n);
        if (end < 0) hopeless.add(mark);
        if (end < 0) return {node: mark, end: at + n};
        const code = text.slice(at + n, end).replaceAll('\n', ' ').replace(/^ (.+) $/, '$1');
        return {node: element('code', {}, code), end: end + n};
    }
    if (c === 'h' && !isWord(text[at - 1])) {
        const m = /^https?:\/\/[^\s<>"`]+/.exec(text.slice(at, at + 2000));
        const address = m?.[0].replace(/[.,;:!?*_'"\])]+$/, '');
        const url = address && safeUrl(address);
        return url ? {node: anchor(url, address), end: at + address.length} : null;
    }
    if (depth >= DEEPEST) return null;
    if (c === '[' || (c === '!' && text[at + 1] === '[')) {
        const link = linkAt(text, at + (c === '!')), url = link && safeUrl(link.url);
        /* A picture is shown as a link to it: nothing is fetched unasked. */
        return url ? {node: anchor(url, ...inlineOf(link.label || link.url, depth + 1)), end: link.end} : null;
    }
    for (const [mark, tag] of MARKS) {
        if (!text.startsWith(mark, at)) continue;
        const end = closingOf(text, at, mark, hopeless);
        if (end < 0) continue;
        const inside = inlineOf(text.slice(at + mark.length, end), depth + 1);
        return {node: element(tag, {}, ...inside), end: end + mark.length};
    }
    return null;
}

function inlineOf(text, depth = 0) {
    const out = [], hopeless = new Set();
    let plain = 0;
    for (let at = 0; at < text.length;) {
        const found = '\n\\`h[!*_~'.includes(text[at]) && inlineAt(text, at, depth, hopeless);
        if (!found) {
            at++;
            continue;
        }
        if (plain < at) out.push(text.slice(plain, at));
        out.push(found.node);
        at = plain = found.end;
    }
    if (plain < text.length) out.push(text.slice(plain));
    return out;
}

function codeNode(block) {
    const copy = element('button', {type: 'button'}, 'Copy');
    copy.onclick = async () => {
        copy.textContent = await copyText(block.text) ? 'Copied' : 'Not copied';
        setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
    };
    return element('div', {className: 'code'},
        element('header', {}, element('span', {}, block.language || 'text'), copy),
        element('pre', {tabIndex: 0}, element('code', {}, block.text)));
}

function tableNode(block) {
    const row = (cells, tag) => element('tr', {}, ...block.align.map((align, i) =>
        element(tag, {className: align}, ...inlineOf(cells[i] ?? ''))));
    return element('div', {className: 'table'}, element('table', {},
        element('thead', {}, row(block.head, 'th')),
        element('tbody', {}, ...block.rows.map(r => row(r, 'td')))));
}

function itemNode(blocks) {
    const nodes = blocks.map(nodeOf);
    if (blocks[0]?.kind === 'paragraph') nodes.splice(0, 1, ...inlineOf(blocks[0].text));
    return element('li', {}, ...nodes);
}

function nodeOf(block) {
    switch (block.kind) {
    case 'code': return codeNode(block);
    case 'heading': return element('h' + block.level, {}, ...inlineOf(block.text));
    case 'rule': return element('hr');
    case 'quote': return element('blockquote', {}, ...block.blocks.map(nodeOf));
    case 'table': return tableNode(block);
    case 'list':
        return block.start === null ? element('ul', {}, ...block.items.map(itemNode))
            : element('ol', {start: block.start}, ...block.items.map(itemNode));
    default: return element('p', {}, ...inlineOf(block.text));
    }
}

/* Brings `into` to what `text` says; blocks that did not change keep their nodes, so that a
   selection and a scrolled table survive the next token. */
function renderMarkdown(into, text) {
    const blocks = blocksOf(text.split('\n')), before = into.blocks ?? [];
    let same = 0;
    while (same < blocks.length && before[same]?.source === blocks[same].source) same++;
    while (into.childNodes.length > same) into.lastChild.remove();
    into.append(...blocks.slice(same).map(nodeOf));
    into.blocks = blocks;
}

/* navigator.clipboard is missing on plain HTTP from another machine. */
async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const area = element('textarea', {value: text, className: 'unseen'});
        document.body.append(area);
        area.select();
        const done = document.execCommand('copy');
        area.remove();
        return done;
    }
}

