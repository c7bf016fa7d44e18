// The description of the fleet, and the answer of one host to one command.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

const mark = "\x02"

type section struct {
	RC    string `json:"rc"`
	MS    int    `json:"ms"`
	State string `json:"state"`
	Note  string `json:"note"`
	Out   string `json:"out"`
	Err   string `json:"err"`

	out, err []string // split at the marks: text, name of a value, text ...
}

type host struct {
	Template int               `json:"template"`
	Seed     []byte            `json:"seed"`
	Mode     string            `json:"mode"`
	Values   map[string]string `json:"values"`
}

type fleet struct {
	Port      int                   `json:"port"`
	ClientKey string                `json:"client_key"`
	DelayMS   int                   `json:"delay_ms"`
	Templates []map[string]*section `json:"templates"`
	Hosts     map[string]*host      `json:"hosts"`

	client []byte
	delay  time.Duration
}

func load(path string) (*fleet, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &fleet{}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(f.ClientKey))
	if err != nil {
		return nil, err
	}
	f.client = key.Marshal()
	f.delay = time.Duration(f.DelayMS) * time.Millisecond
	for _, template := range f.Templates {
		for _, s := range template {
			s.out, s.err = strings.Split(s.Out, mark), strings.Split(s.Err, mark)
		}
	}
	return f, nil
}

// answer reads what the command reads and gives what it prints, and its exit code.
func (f *fleet) answer(h *host, line string, stdin io.Reader) ([]byte, uint32) {
	template := f.Templates[h.Template]
	if strings.TrimSpace(line) == "nvidia-smi -q" {
		var said bytes.Buffer
		h.fill(&said, template["nvidia-smi-q"].out)
		return said.Bytes(), 0
	}
	words := split(line)
	at := 0
	for at < len(words) && words[at] != "llmgwctl" {
		at++
	}
	if at+5 >= len(words) { // the script's length, and root, state_dir, budget, nonce
		return f.unknown(fmt.Sprintf("command not found: %.60q", line))
	}
	length, err := strconv.Atoi(words[at+1])
	// In large pieces: this library gives the window back after each read, and sshd only when much of it is used up.
	input, readErr := io.ReadAll(bufio.NewReaderSize(stdin, 1<<16))
	if err != nil || readErr != nil || length > len(input) {
		return f.unknown("the script is not whole")
	}
	said, code := f.framed(h, template, words[at+5], input[length:])
	if code == 0 && at+7 < len(words) && words[at+7] == "gzip" { // after rights
		return packed(said, words[at+5]), 0
	}
	return said, code
}

// packed is the answer as a host sends it that has gzip and is asked to use it.
func packed(said []byte, nonce string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "LLMGWCTL-GZIP %s\n", nonce)
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	w.Write(said)
	w.Close()
	return out.Bytes()
}

func (f *fleet) unknown(why string) ([]byte, uint32) {
	atomic.AddInt64(&now.Unknown, 1)
	return []byte(why + "\n"), 127
}

// framed is probe.sh: the sections that are asked for, in that order.
func (f *fleet) framed(h *host, template map[string]*section, nonce string, asked []byte) ([]byte, uint32) {
	said := bytes.NewBuffer(make([]byte, 0, 96*1024))
	fmt.Fprintf(said, "LLMGWCTL-BEGIN %s\n", nonce)
	for len(asked) > 0 {
		head, rest, found := bytes.Cut(asked, []byte("\n"))
		words := strings.Fields(string(head)) // NAME LANE TIMEOUT_S KIND NBYTES AFTER AFTER_SAYS UNLESS
		if !found || len(words) != 8 {
			return f.unknown("not a section")
		}
		length, err := strconv.Atoi(words[4])
		if err != nil || length > len(rest) {
			return f.unknown("a section that is not whole")
		}
		asked = rest[length:]
		s := template[words[0]]
		if s == nil {
			atomic.AddInt64(&now.Unknown, 1)
			s = &section{RC: "127", State: "ran"}
		}
		h.frame(said, words[0], s)
	}
	fmt.Fprintf(said, "LLMGWCTL-END %s %s\n", nonce, seconds())
	return said.Bytes(), 0
}

func (h *host) frame(said *bytes.Buffer, name string, s *section) {
	out := s.out
	if name == "clock" {
		out = []string{"begin " + seconds() + "\n"}
	}
	fmt.Fprintf(said, "@ %s %s %d %d %d %s 0 %s\n", name, s.RC, s.MS, h.size(out), h.size(s.err), s.State, s.Note)
	h.fill(said, out)
	h.fill(said, s.err)
}

func (h *host) size(parts []string) int {
	n := 0
	for i, part := range parts {
		n += len(h.value(i, part))
	}
	return n
}

func (h *host) fill(said *bytes.Buffer, parts []string) {
	for i, part := range parts {
		said.WriteString(h.value(i, part))
	}
}

func (h *host) value(place int, part string) string {
	if place%2 == 1 {
		return h.Values[part]
	}
	return part
}

func seconds() string {
	t := time.Now()
	return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond())
}

// split takes a line of plain words and words in single quotes apart, as a shell would.
func split(line string) []string {
	var words []string
	var word strings.Builder
	quoted, begun := false, false
	for _, c := range line {
		switch {
		case c == '\'':
			quoted, begun = !quoted, true
		case c == ' ' && !quoted:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}
