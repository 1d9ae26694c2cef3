/* The packets of an agent, and nothing else: what the kernel and a loop in C take for them.
 *
 *   bare_loop RNICS SPREAD_MS SLOT_MS PORT...
 *
 * Each RNIC has a socket that answers and one that probes, on loopback. Once a second it probes all
 * ports, RNIC by RNIC of each host, as an agent spreads a round. It prints the ports that answer,
 * reads packets with the kernel's stamps, and ends when its standard input does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "probers/transports/_c/packet.h"

#define BYTES MIN_PACKET_BYTES
#define MAX_RNICS 64

static const Keys UNSEALED;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int open_socket(int epoll) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&here, sizeof here) < 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        perror("socket");
        exit(1);
    }
    return fd;
}

/* Read a datagram; answer it if it is a probe. */
static void take_in(int fd) {
    uint8_t data[MAX_PACKET_BYTES + 1], control[64];
    struct sockaddr_in from;
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part,
                             .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t length = recvmsg(fd, &message, 0);
    if (length < 0 || verdict(&UNSEALED, data, (size_t)length) != INTACT || data[TYPE_AT] != PROBE)
        return;
    uint64_t t2 = (uint64_t)now_ns();
    seal(&UNSEALED, data, (size_t)length, REPLY, FLAG_T2_KERNEL, get64(data + NONCE_AT), t2,
         (uint64_t)now_ns(), 0);
    sendto(fd, data, (size_t)length, 0, (struct sockaddr *)&from, sizeof from);
}

int main(int count, char **words) {
    int rnics = count > 4 ? atoi(words[1]) : 0, targets = count - 4, probing[MAX_RNICS];
    if (rnics < 1 || rnics > MAX_RNICS)
        return 2;
    int64_t spread_ns = atoll(words[2]) * 1000000, slot_ns = atoll(words[3]) * 1000000;
    int epoll = epoll_create1(0), next = 0;
    crc_prepare();
    for (int i = 0; i < rnics; i++) {
        struct sockaddr_in here;
        socklen_t size = sizeof here;
        getsockname(open_socket(epoll), (struct sockaddr *)&here, &size);
        printf("%d ", ntohs(here.sin_port));
        probing[i] = open_socket(epoll);
    }
    printf("\n");
    fflush(stdout);
    struct epoll_event ending = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
    epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &ending);
    uint8_t probe[BYTES] = {0};
    uint64_t nonce = 0;
    for (int64_t start_ns = now_ns();;) {
        struct epoll_event events[64];
        int64_t offset_ns = next * spread_ns / targets / slot_ns * slot_ns;
        int64_t wait_ns = start_ns + offset_ns - now_ns();
        int ready = epoll_wait(epoll, events, 64, wait_ns > 0 ? (int)(wait_ns / 1000000) + 1 : 0);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd == STDIN_FILENO)
                return 0;
            take_in(events[i].data.fd);
        }
        while (start_ns + next * spread_ns / targets / slot_ns * slot_ns <= now_ns()) {
            struct sockaddr_in to = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)atoi(words[4 + next])),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            seal(&UNSEALED, probe, BYTES, PROBE, 0, ++nonce, 0, 0, 0);
            sendto(probing[next % rnics], probe, BYTES, 0, (struct sockaddr *)&to, sizeof to);
            if (++next == targets) {
                next = 0;
                start_ns += 1000000000LL;
            }
        }
    }
}
