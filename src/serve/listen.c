/* The listening socket: an address and port, or a path. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "serve/server_impl.h"

enum {
    BACKLOG = 511,          /* the kernel caps it; a burst of clients should not be refused */
    SEND_BUFFER = 128 << 10 /* of each connection: what waits for a slow reader should wait here, in
                               little, and not in megabytes of the kernel's */
};

static rp_status fail_bind(const rp__server *s, int why, rp_error *err) {
    const rp__server_config *c = &s->config;
    if (why == EADDRINUSE)
        return rp__fail(err, RP_EBUSY, "port %d of %s is in use; --port chooses another (0: any)",
                        c->port, c->host);
    if (why == EACCES)
        return rp__fail(err, RP_EIO, "port %d of %s may not be used by this user", c->port,
                        c->host);
    return rp__fail(err, RP_EIO, "cannot listen on %s, port %d: %s", c->host, c->port,
                    strerror(why));
}

static int open_address(const struct addrinfo *a, int *why) {
    int on = 1, send_buffer = SEND_BUFFER,
        fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *why = errno;
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer); /* inherited */
    if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, BACKLOG)) return fd;
    *why = errno;
    close(fd);
    return -1;
}

/* The address as bound: it names the port when any free one was asked for. */
static void write_url(rp__server *s) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char host[72] = "?", port[8] = "0";
    if (!getsockname(s->listen_fd, (struct sockaddr *)&a, &n))
        getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    bool is_v6 = strchr(host, ':') != NULL;
    snprintf(s->url, sizeof s->url, "%s://%s%s%s:%s", s->config.tls_cert ? "https" : "http",
             is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

static rp_status listen_tcp(rp__server *s, rp_error *err) {
    const rp__server_config *c = &s->config;
    struct addrinfo want = {.ai_family = AF_UNSPEC,
                            .ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", c->port);
    int bad = getaddrinfo(c->host, port, &want, &found), why = EADDRNOTAVAIL;
    if (bad) return rp__fail(err, RP_EINVAL, "--host %s: %s", c->host, gai_strerror(bad));
    for (const struct addrinfo *a = found; a && s->listen_fd < 0; a = a->ai_next)
        s->listen_fd = open_address(a, &why);
    freeaddrinfo(found);
    if (s->listen_fd < 0) return fail_bind(s, why, err);
    write_url(s);
    return RP_OK;
}

/* A socket file that nobody listens on is left from a process that was killed. */
static void remove_stale(const struct sockaddr_un *a) {
    struct stat st;
    if (stat(a->sun_path, &st) || !S_ISSOCK(st.st_mode)) return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)a, sizeof *a) && errno == ECONNREFUSED)
        unlink(a->sun_path);
    close(fd);
}

static rp_status listen_path(rp__server *s, rp_error *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = s->config.host;
    if (strlen(path) >= sizeof a.sun_path)
        return rp__fail(err, RP_EINVAL, "--host %s: a socket's path has at most %zu bytes", path,
                        sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    remove_stale(&a);
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listen_fd < 0 || bind(s->listen_fd, (struct sockaddr *)&a, sizeof a) ||
        listen(s->listen_fd, BACKLOG))
        return rp__fail(err, RP_EIO, "cannot listen on %s: %s", path, strerror(errno));
    s->socket_path = rp__strdup(path);
    snprintf(s->url, sizeof s->url, "unix:%s", path);
    return s->socket_path ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for a path");
}

rp_status rp__listen(rp__server *s, rp_error *err) {
    return strchr(s->config.host, '/') ? listen_path(s, err) : listen_tcp(s, err);
}
