"""The shared library from Python by ctypes: a binding needs the header and nothing else."""

import ctypes as c
import threading

import pytest

from api.header import read_structs
from project import BUILD, FIXTURES

LIBRARY = BUILD / "libreprise.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"no library in {BUILD}")

OK, END, EQUEUE, ESHUTDOWN = 0, 1, -12, -14
TOKEN, DONE = 0, 1
STOP, LENGTH, CANCELLED = 1, 2, 3

STRUCTS = read_structs("status.h", "common.h", "reprise.h")
Error, Event = STRUCTS["rp_error"], STRUCTS["rp_event"]
EngineOptions, RequestOptions = STRUCTS["rp_engine_options"], STRUCTS["rp_request_options"]
ON_EVENT = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.POINTER(Event))


@pytest.fixture(scope="module")
def lib():
    library = c.CDLL(str(LIBRARY))
    library.rp_engine_options_default.restype = EngineOptions
    library.rp_request_options_default.restype = RequestOptions
    library.rp_status_name.restype = c.c_char_p
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
        said += event.text[: event.text_bytes]
        if event.kind == DONE:
            last = Event.from_buffer_copy(event)
        else:
            ids.append(event.id)
    assert status == END
    return ids, said.decode(), last


def test_the_library_has_the_structs_of_the_header(lib):
    defaults = [name for name in STRUCTS if name.endswith("_options")]
    assert "rp_inspect_options" in defaults
    for name in defaults:
        default = getattr(lib, f"{name}_default")
        default.restype = STRUCTS[name]
        assert default().bytes == c.sizeof(STRUCTS[name]), name


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
