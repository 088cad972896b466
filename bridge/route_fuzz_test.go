package bridge

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// FuzzCopy carries a message with any headers, and again and again, as two bridges do that
// send it to each other.
func FuzzCopy(f *testing.F) {
	f.Add("", "", "00:01:00", "2026-01-02 03:04:05:000006 Z", "", "shop", "key", "value")
	f.Add("a,b,other", "", "106750.00:00:00", "9999-12-31 23:59:59:999999 Z", "2026-01-02 03:04:05:000006 Z", "elsewhere", headers.Attempts, "[]")
	f.Add(strings.Repeat(",", 20), "", "", "", "9999-12-31 23:59:59:999999 Z", "", HeaderReplyToAddress, "forged")
	f.Add("other,carrier", "shop", "", "", "", "", headers.TimeOfFailure, "2026-01-02 03:04:05:000006 Z")
	f.Add("carrier,carrier", "shop", "-1", "x", "0000-00-00 00:00:00:000000 Z", "billing", headers.TimeToBeReceived, "00:00:00")
	f.Add("", "billing", "", "", "", "", "x", "y")
	near, far := inmemory.Open(), inmemory.Open()
	translate, err := newAddresses(&Side{Transport: near, Queues: []string{"shop"}}, &Side{Transport: far, Queues: []string{"billing"}})
	if err != nil {
		f.Fatal(err)
	}
	r := &route{direction: &direction{bridge: "carrier", to: far, caps: far.Capabilities(), addresses: translate, config: &Config{}}, queue: "billing"}
	f.Fuzz(func(t *testing.T, crossed, failedQ, lives, sent, due, reply, key, value string) {
		given := map[string]string{
			headerHops: crossed, headers.FailedQ: failedQ, headers.TimeOfFailure: sent, headers.TimeToBeReceived: lives, headers.TimeSent: sent, headers.DeliverAt: due, headers.ReplyToAddress: reply, "x" + key: value, key: key,
		}
		for name, value := range given {
			if name == "" || value == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
				delete(given, name)
			}
		}
		for crossings := 1; ; crossings++ {
			m, _, _ := coretest.Message(core.NewMessageType[[]byte]("order"), []byte("body"), coretest.Options{Headers: given, NoReplyTo: true})
			out, err := r.copy(m)
			if err != nil {
				return // it waits, is discarded or given up
			}
			list := hops(out.Headers)
			if n := len(list); n == 0 || n > maxHops || list[n-1] != "carrier" {
				t.Fatalf("the hops are %q", list)
			}
			if out.Queue != "billing" || out.Topic != "" || string(out.Body) != "body" || out.ID != m.ID || out.Delay < 0 || out.TimeToBeReceived < 0 {
				t.Errorf("with %q it is %+v", given, out)
			}
			if reply := out.Headers.Get(headers.ReplyToAddress); reply != "" && reply != "shop" && reply != "billing" {
				t.Errorf("with %q it has the reply address %q of the other side", given, reply)
			}
			if size := out.Headers.Bytes(); size > 2*m.Headers.Bytes()+200 {
				t.Errorf("headers of %d bytes have become %d", m.Headers.Bytes(), size)
			}
			if crossings > maxHops {
				t.Fatalf("with %q it has crossed the bridge %d times", given, crossings)
			}
			given = out.Headers.Map()
		}
	})
}

// FuzzHops reads any text as the bridges that a message has crossed.
func FuzzHops(f *testing.F) {
	for _, text := range []string{"", "a", "a,b", ",", ",,a", strings.Repeat("a,", 15) + "a", strings.Repeat("a,", 16), "\xff"} {
		f.Add(text, "carrier")
	}
	f.Fuzz(func(t *testing.T, text, bridge string) {
		if bridge == "" || strings.Contains(bridge, hopSeparator) {
			return // no name of a bridge
		}
		var h core.Headers
		h.Set(headerHops, text)
		before := hops(h)
		err := addHop(&h, bridge, true)
		after := hops(h)
		switch {
		case (err != nil) != (len(before) >= maxHops):
			t.Errorf("%q: %v", text, err)
		case err != nil:
			if !errors.Is(err, errLoop) || h.Get(headerHops) != text {
				t.Errorf("%q: %v, and the hops are %q", text, err, after)
			}
		case len(after) != len(before)+1 || !crossed(h, bridge):
			t.Errorf("%q: the hops are %q", text, after)
		}
	})
}
