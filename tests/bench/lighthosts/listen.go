// Sockets: one for all addresses, and for each dead host one that drops whatever arrives.
package main

import (
	"context"
	"net"
	"strconv"
	"syscall"
)

const soReusePort = 0xf // the listener of one address beside the one of all

func reuse(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soReusePort, 1)
	})
}

// claim keeps a second process from taking half of the connections: two may share a TCP port, and not this one.
func claim(port int) (net.PacketConn, error) {
	return net.ListenPacket("udp4", ":"+strconv.Itoa(port))
}

func listen(port int) (net.Listener, error) {
	config := net.ListenConfig{Control: reuse}
	return config.Listen(context.Background(), "tcp4", ":"+strconv.Itoa(port))
}

// dropEverything makes an address unanswering: with its queue of connections full, the kernel drops every further SYN.
func dropEverything(address string, port int) error {
	where := &syscall.SockaddrInet4{Port: port}
	copy(where.Addr[:], net.ParseIP(address).To4())
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soReusePort, 1)
	if err := syscall.Bind(fd, where); err != nil {
		return err
	}
	if err := syscall.Listen(fd, 0); err != nil {
		return err
	}
	for i := 0; i < 4; i++ {
		waiting, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		syscall.Connect(waiting, where) // never closed
	}
	return nil
}

func raiseFileLimit() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
}
