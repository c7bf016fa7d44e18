// Light SSH hosts: thousands of loopback addresses in one process, each with its own host key, which answer the framed
// probe of llmgwctl, and a plain `nvidia-smi -q`, from memory. What they cost is the SSH protocol and little more.
//
// Argument: the description that lightfleet.py writes. Every address of the description is served on one port; one key
// exchange and one cipher are offered, so that all clients do the same work. A line on standard input asks for the
// counts, as one line of JSON; its end ends the process.
package main

import (
	"bufio"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

type counts struct {
	Connections int64 `json:"connections"` // open now
	Sessions    int64 `json:"sessions"`    // commands that are at work now
	Logins      int64 `json:"logins"`      // in all
	Commands    int64 `json:"commands"`    // in all
	Unknown     int64 `json:"unknown"`     // commands or sections that there is no answer for
}

var now counts

var errWrongKey = errors.New("not the client's key")

// One key exchange and one cipher for everybody; the client's key alone may log in.
func configured(h *host, client []byte) (*ssh.ServerConfig, error) {
	c := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
			if string(k.Marshal()) == string(client) {
				return nil, nil
			}
			return nil, errWrongKey
		},
	}
	c.KeyExchanges = []string{"curve25519-sha256"}
	c.Ciphers = []string{"aes128-gcm@openssh.com"}
	signer, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(h.Seed))
	if err != nil {
		return nil, err
	}
	c.AddHostKey(signer)
	return c, nil
}

func (f *fleet) serve(c net.Conn) {
	atomic.AddInt64(&now.Connections, 1)
	defer atomic.AddInt64(&now.Connections, -1)
	defer c.Close()
	address, _, _ := net.SplitHostPort(c.LocalAddr().String())
	h := f.Hosts[address]
	if h == nil {
		return
	}
	if h.Mode == "silent" {
		io.Copy(io.Discard, c)
		return
	}
	config, err := configured(h, f.client)
	if err != nil {
		log.Fatal(err)
	}
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	atomic.AddInt64(&now.Logins, 1)
	go ssh.DiscardRequests(requests)
	for n := range channels {
		if n.ChannelType() != "session" {
			n.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, asked, err := n.Accept()
		if err != nil {
			return
		}
		go f.session(h, channel, asked)
	}
}

// One command a session. A terminal is granted and changes nothing: some tools ask for one.
func (f *fleet) session(h *host, channel ssh.Channel, asked <-chan *ssh.Request) {
	started := false
	gone := make(chan struct{})
	defer close(gone)
	for r := range asked {
		if r.Type != "exec" || started {
			if r.WantReply {
				r.Reply(r.Type == "env" || r.Type == "pty-req", nil)
			}
			continue
		}
		var command struct{ Line string }
		ssh.Unmarshal(r.Payload, &command)
		r.Reply(true, nil)
		started = true
		go f.command(h, channel, command.Line, gone)
	}
}

// A hanging host's command ends when its channel does, as nothing of it ends by itself.
func (f *fleet) command(h *host, channel ssh.Channel, line string, gone <-chan struct{}) {
	atomic.AddInt64(&now.Commands, 1)
	atomic.AddInt64(&now.Sessions, 1)
	defer atomic.AddInt64(&now.Sessions, -1)
	said, code := f.answer(h, line, channel)
	if h.Mode == "hanging" {
		<-gone
		return
	}
	select {
	case <-gone:
		return
	case <-time.After(f.delay):
	}
	channel.Write(said)
	channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
	channel.Close()
}

func (f *fleet) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			time.Sleep(time.Millisecond) // out of files for a moment
			continue
		}
		go f.serve(c)
	}
}

func report(in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var seen counts
		seen.Connections = atomic.LoadInt64(&now.Connections)
		seen.Sessions = atomic.LoadInt64(&now.Sessions)
		seen.Logins = atomic.LoadInt64(&now.Logins)
		seen.Commands = atomic.LoadInt64(&now.Commands)
		seen.Unknown = atomic.LoadInt64(&now.Unknown)
		text, _ := json.Marshal(seen)
		fmt.Fprintf(out, "%s\n", text)
	}
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: lighthosts DESCRIPTION")
	}
	f, err := load(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	raiseFileLimit()
	claimed, err := claim(f.Port)
	if err != nil {
		log.Fatal(err)
	}
	defer claimed.Close()
	for address, h := range f.Hosts {
		if h.Mode == "dead" {
			if err := dropEverything(address, f.Port); err != nil {
				log.Fatal(err)
			}
		}
	}
	listener, err := listen(f.Port)
	if err != nil {
		log.Fatal(err)
	}
	go f.accept(listener)
	fmt.Println("ready")
	report(os.Stdin, os.Stdout)
}
