package filetransport_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

func TestFiles_AreReadable(t *testing.T) {
	transport, dir := opened(t, filetransport.Config{})
	var headers core.Headers
	headers.Set("kind", "line\nbreak, ä and <\"quotes\">")
	headers.Set("empty", "")
	err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "orders", Headers: headers, Body: []byte("two\nlines\x00")})
	settled(t, err)
	all := names(t, dir)
	if len(all) != 1 || !regexp.MustCompile(`^\d{8}T\d{6}\.\d{9}Z_1_[A-Z2-7]{26}_new$`).MatchString(all[0]) {
		t.Fatalf("files %q", all)
	}
	content, err := os.ReadFile(filepath.Join(dir, all[0]))
	settled(t, err)
	equal(t, "content", string(content), `{"Reprise.MessageID":"1","empty":"","kind":"line\nbreak, ä and \u003c\"quotes\"\u003e"}`+"\ntwo\nlines\x00")

	in := receive(t, receiver(t, transport, 1)).Incoming()
	equal(t, "header", in.Headers.Get("kind"), headers.Get("kind"))
	equal(t, "headers", in.Headers.Len(), 2)
	equal(t, "body", string(in.Body), "two\nlines\x00")
	equal(t, "native id", in.NativeID, strings.Split(all[0], "_")[2])
	equal(t, "id", in.ID, "1")
	if in.Malformed != nil || in.Redelivered || in.DeliveryCount != 1 || time.Since(in.EnqueuedAt) > time.Minute {
		t.Errorf("received %+v", in)
	}
	held := names(t, dir)
	if len(held) != 1 || !regexp.MustCompile(`_1_`+in.NativeID+`_held-[A-Z2-7]{26}$`).MatchString(held[0]) {
		t.Errorf("while it is held: %q", held)
	}
}

func TestFiles_Unreadable(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		invalid bool
	}{
		"nothing":           {"", false},
		"no JSON":           {"hello\nworld", false},
		"half of a line":    {`{"kind":"or`, false},
		"no object":         {"[]\nbody", false},
		"not strings":       {`{"n":1}` + "\nbody", false},
		"an empty key":      {`{"":"x","kind":"order"}` + "\nbody", true},
		"headers not UTF-8": {"{\"kind\":\"\xff\"}\nbody", true},
		"nothing but zeros": {string(make([]byte, 4096)), false},
	} {
		t.Run(name, func(t *testing.T) {
			transport, dir := opened(t, filetransport.Config{})
			put(t, dir, past()+"_2_ID_back", c.content)
			send(t, transport, "sound")
			r := receiver(t, transport, 2)
			d := receive(t, r)
			in := d.Incoming()
			equal(t, "body", string(in.Body), c.content)
			equal(t, "id", in.ID, "ID")
			equal(t, "count", in.DeliveryCount, 2)
			equal(t, "redelivered", in.Redelivered, true)
			equal(t, "invalid header", errors.Is(in.Malformed, core.ErrInvalidHeader), c.invalid)
			if _, empty := in.Headers.Lookup(""); in.Malformed == nil || empty {
				t.Errorf("malformed: %v, headers %v", in.Malformed, in.Headers.Map())
			}
			// What could be read goes to the error queue like any message.
			settled(t, transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "orders", Headers: in.Headers, Body: in.Body}))
			settled(t, d.Complete(t.Context()))
			equal(t, "the next", string(receive(t, r).Incoming().Body), "sound")
		})
	}
}

func TestFiles_ForeignOnesAreLeftAlone(t *testing.T) {
	transport, dir := opened(t, filetransport.Config{})
	others := []string{".DS_Store", "20261120T133100.123456789Z_0_ID_new", "README", "a_b_c_d", "zebra_1_ID_new"}
	for _, name := range others {
		put(t, dir, name, "{}\nforeign")
	}
	settled(t, os.Mkdir(filepath.Join(dir, past()+"_1_DIRECTORY_new"), 0o700)) // it cannot be read
	send(t, transport, "ours", "ours too")
	r := receiver(t, transport, 2)
	for _, want := range []string{"ours", "ours too"} {
		d := receive(t, r)
		equal(t, "body", string(d.Incoming().Body), want)
		settled(t, d.Complete(t.Context()))
	}
	nothing(t, r)
	left := slices.DeleteFunc(names(t, dir), func(name string) bool { return strings.HasSuffix(name, "_DIRECTORY_new") })
	if !slices.Equal(left, others) {
		t.Errorf("left are %q", left)
	}
}

// nothing tells that there is nothing to receive, having looked.
func nothing(t testing.TB, r core.Receiver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	dst := make([]core.Delivery, 1)
	if n, err := r.Receive(ctx, dst); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Receive = %d, %v", n, err)
	}
}

func TestSend_RefusedWritesNothing(t *testing.T) {
	transport, dir := opened(t, filetransport.Config{})
	header := func(key, value string) (h core.Headers) { h.Set(key, value); return h }
	for name, c := range map[string]struct {
		out  core.Outgoing
		want error
	}{
		"topic":        {core.Outgoing{ID: "1", Topic: "t"}, errors.ErrUnsupported},
		"queue, topic": {core.Outgoing{ID: "1", Queue: "orders", Topic: "t"}, nil},
		"neither":      {core.Outgoing{}, nil},
		"expiry":       {core.Outgoing{ID: "1", Queue: "orders", TimeToBeReceived: 1}, errors.ErrUnsupported},
		"delay":        {core.Outgoing{ID: "1", Queue: "orders", Delay: -1}, nil},
		"empty key":    {core.Outgoing{ID: "1", Queue: "orders", Headers: header("", "x")}, core.ErrInvalidHeader},
		"key":          {core.Outgoing{ID: "1", Queue: "orders", Headers: header("\xff", "x")}, core.ErrInvalidHeader},
		"value":        {core.Outgoing{ID: "1", Queue: "orders", Headers: header("x", "\xff")}, core.ErrInvalidHeader},
	} {
		sound := core.Outgoing{ID: "sound", Queue: "orders"}
		err := transport.Send(t.Context(), sound, c.out, sound)
		var failed *core.SendError
		if !errors.As(err, &failed) || len(failed.Results) != 3 || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, result := range failed.Results {
			equal(t, name, result.State, core.SendRefused)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	matches(t, "an ended context", transport.Send(ended, core.Outgoing{ID: "1", Queue: "orders"}), context.Canceled)
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("written: %q", left)
	}
}

func TestQueue_IsNoDirectory(t *testing.T) {
	transport, dir := opened(t, filetransport.Config{})
	settled(t, os.Remove(dir))
	put(t, filepath.Dir(dir), "orders.queue", "a file")
	err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "orders"})
	var failed *core.SendError
	if !errors.As(err, &failed) || failed.Results[0].State != core.SendRefused || strings.Contains(err.Error(), "\n") {
		t.Errorf("Send: %v", err)
	}
}
