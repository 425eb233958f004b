"""The shared library from Python by ctypes: what a binding needs is the header, and nothing else.

The structs are written down here a second time; `bytes`, which the library sets to its own size of
a struct, tells when the two have come apart."""

import ctypes as c
import threading

import pytest

from project import BUILD, FIXTURES

LIBRARY = BUILD / "libreprise.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"no library in {BUILD}")

OK, END, EQUEUE, ESHUTDOWN = 0, 1, -12, -14
TOKEN, DONE = 0, 1
STOP, LENGTH, CANCELLED = 1, 2, 3
u32, u64, text = c.c_uint32, c.c_uint64, c.c_char_p


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("message", c.c_char * 508)]


class EngineOptions(c.Structure):
    _fields_ = [
        ("bytes", u32), ("model", text), ("device", text), ("device_options", text),
        ("n_threads", c.c_int), ("n_ctx", c.c_int), ("max_seqs", c.c_int),
        ("max_batch_tokens", c.c_int), ("prefill_chunk", c.c_int), ("max_queue", c.c_int),
        ("prefix_cache", c.c_bool), ("block_size", c.c_int), ("n_blocks", c.c_int),
        ("cache_type_k", text), ("cache_type_v", text), ("activations", c.c_int),
        ("capture", c.c_int), ("max_graphs", c.c_int), ("capture_at_start", c.c_bool),
        ("chat_template", text), ("progress", c.c_void_p), ("progress_user", c.c_void_p),
    ]  # fmt: skip


class LogitBias(c.Structure):
    _fields_ = [("id", c.c_int32), ("bias", c.c_float)]


class Sampling(c.Structure):
    _fields_ = [
        ("temperature", c.c_float), ("top_k", c.c_int), ("top_p", c.c_float),
        ("min_p", c.c_float), ("repetition_penalty", c.c_float), ("presence_penalty", c.c_float),
        ("frequency_penalty", c.c_float), ("penalty_last_n", c.c_int), ("seed", u64),
        ("logit_bias", c.POINTER(LogitBias)), ("n_logit_bias", c.c_size_t),
    ]  # fmt: skip


class Usage(c.Structure):
    _fields_ = [
        ("n_prompt", u32), ("n_cached", u32), ("n_generated", u32), ("n_preemptions", u32),
        ("queue_seconds", c.c_double), ("prefill_seconds", c.c_double),
        ("decode_seconds", c.c_double),
    ]  # fmt: skip


class TopLogprob(c.Structure):
    _fields_ = [("id", c.c_int32), ("logprob", c.c_float)]


class Event(c.Structure):
    _fields_ = [
        ("kind", c.c_int), ("id", c.c_int32), ("logprob", c.c_float),
        ("top", c.POINTER(TopLogprob)), ("n_top", c.c_size_t), ("text", c.c_void_p),
        ("text_bytes", c.c_size_t), ("finish", c.c_int), ("stop", text), ("usage", Usage),
        ("error", Error),
    ]  # fmt: skip


class RequestOptions(c.Structure):
    _fields_ = [
        ("bytes", u32), ("prompt_ids", c.POINTER(c.c_int32)), ("n_prompt_ids", c.c_size_t),
        ("messages", text), ("template_kwargs", text), ("add_generation_prompt", c.c_bool),
        ("continue_final_message", c.c_bool), ("prompt", text), ("prompt_bytes", c.c_size_t),
        ("parse_special", c.c_bool), ("skip_bos", c.c_bool), ("max_tokens", c.c_int),
        ("min_tokens", c.c_int), ("ignore_eos", c.c_bool), ("skip_special_tokens", c.c_bool),
        ("stop", c.POINTER(text)), ("n_stop", c.c_size_t), ("stop_ids", c.POINTER(c.c_int32)),
        ("n_stop_ids", c.c_size_t), ("sampling", Sampling), ("n_logprobs", c.c_int),
        ("n_prompt_logprobs", c.c_int), ("priority", c.c_int), ("timeout_seconds", c.c_double),
        ("use_prefix_cache", c.c_bool), ("cache_salt", text), ("on_event", c.c_void_p),
        ("user", c.c_void_p),
    ]  # fmt: skip


ON_EVENT = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.POINTER(Event))


@pytest.fixture(scope="module")
def lib():
    library = c.CDLL(str(LIBRARY))
    library.rp_engine_options_default.restype = EngineOptions
    library.rp_request_options_default.restype = RequestOptions
    library.rp_status_name.restype = text
    for name in ("engine_destroy", "request_release", "request_cancel", "free"):
        getattr(library, f"rp_{name}").argtypes = [c.c_void_p]
        getattr(library, f"rp_{name}").restype = None
    library.rp_request_next.argtypes = [c.c_void_p, c.c_int, c.POINTER(Event)]
    library.rp_engine_drain.argtypes = [c.c_void_p, c.c_int]
    return library


def create(lib, **settings):
    options, engine, error = lib.rp_engine_options_default(), c.c_void_p(), Error()
    options.model = str(FIXTURES / "models" / "table64.gguf").encode()
    for name, value in settings.items():
        setattr(options, name, value)
    status = lib.rp_engine_create(c.byref(options), c.byref(engine), c.byref(error))
    assert status == OK, error.message
    return engine


@pytest.fixture
def engine(lib):
    handle = create(lib)
    yield handle
    lib.rp_engine_destroy(handle)


def options_for(lib, **settings):
    options = lib.rp_request_options_default()
    options.prompt, options.max_tokens, options.sampling.temperature = b"e", 6, 0
    for name, value in settings.items():
        setattr(options, name, value)
    return options


def submit(lib, engine, options):
    request, error = c.c_void_p(), Error()
    status = lib.rp_engine_submit(engine, c.byref(options), c.byref(request), c.byref(error))
    return status, request, error.message.decode()


def follow(lib, request):
    """Ids, text and the last event."""
    ids, said, event = [], b"", Event()
    while (status := lib.rp_request_next(request, -1, c.byref(event))) == OK:
        said += c.string_at(event.text, event.text_bytes)
        if event.kind == DONE:
            last = Event.from_buffer_copy(event)
        else:
            ids.append(event.id)
    assert status == END
    return ids, said.decode(), last


def test_the_structs_are_the_headers(lib):
    assert lib.rp_engine_options_default().bytes == c.sizeof(EngineOptions)
    assert lib.rp_request_options_default().bytes == c.sizeof(RequestOptions)


def test_an_answer(lib, engine):
    status, request, _ = submit(lib, engine, options_for(lib))
    assert status == OK
    ids, said, last = follow(lib, request)
    assert (ids, said, last.finish) == ([8, 9, 10, 11, 12, 13], "fghijk", LENGTH)
    assert (last.usage.n_prompt, last.usage.n_generated) == (1, 6)
    lib.rp_request_release(request)


def test_a_refusal_has_a_sentence(lib, engine):
    status, request, message = submit(lib, engine, options_for(lib, max_tokens=0))
    assert lib.rp_status_name(status) == b"RP_EINVAL"
    assert message == "max_tokens is 0, expected at least 1, or -1 for no limit"
    assert request.value is None


def test_callbacks_of_choices_come_on_another_thread(lib, engine):
    seen, threads = {}, set()

    @ON_EVENT
    def on_event(user, request, event):
        threads.add(threading.get_ident())
        seen.setdefault(request, []).append(event.contents.kind)

    options = options_for(lib)
    options.on_event = c.cast(on_event, c.c_void_p)
    requests, error = (c.c_void_p * 3)(), Error()
    assert lib.rp_engine_submit_n(engine, c.byref(options), 3, requests, c.byref(error)) == OK
    for request in requests:
        assert lib.rp_request_wait(c.c_void_p(request), None, None, c.byref(error)) == OK
        assert seen[request] == [TOKEN] * 6 + [DONE]
        lib.rp_request_release(request)
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_many_threads(lib):
    engine, wrong = create(lib, max_seqs=3, n_ctx=64), []

    def work():
        for _ in range(10):
            _, request, _ = submit(lib, engine, options_for(lib))
            if follow(lib, request)[1] != "fghijk":
                wrong.append(1)
            lib.rp_request_release(request)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lib.rp_engine_destroy(engine)
    assert not wrong


def test_cancel_queue_and_drain(lib):
    engine, may_go_on = create(lib, max_seqs=1, max_queue=1), threading.Event()

    @ON_EVENT
    def hold(user, request, event):
        may_go_on.wait()

    endless = options_for(lib, max_tokens=-1, ignore_eos=True, on_event=c.cast(hold, c.c_void_p))
    (_, first, _), (_, second, _) = (submit(lib, engine, endless) for _ in range(2))
    status, _, message = submit(lib, engine, endless)
    assert status == EQUEUE and "2 requests are running and waiting" in message
    for request in (second, first):
        lib.rp_request_cancel(request)
    may_go_on.set()
    for request in (second, first):
        assert follow(lib, request)[2].finish == CANCELLED
        lib.rp_request_release(request)
    assert lib.rp_engine_drain(engine, -1) == OK
    assert submit(lib, engine, endless)[0] == ESHUTDOWN
    lib.rp_engine_destroy(engine)
