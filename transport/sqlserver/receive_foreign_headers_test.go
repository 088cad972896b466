package sqlserver_test

import (
	"maps"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestReceive_HeadersOfOtherTypes: a sender that writes JSON by a library of its language gives
// values the types that they have there.
func TestReceive_HeadersOfOtherTypes(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "q")
	want := map[string]string{"n": "12.50", "b": "true", "none": "", "list": "1;two;false", "object": "a=2,b=1", "nul": "x\x00", "half": "\uFFFD"}
	for _, mode := range allModes {
		db.exec(t, `insert into `+db.table("q")+` (headers, body) values ($1, 'body')`,
			`{"n": 12.50, "b": true, "none": null, "list": [1, "two", false], "object": {"b": 1, "a": 2}, "nul": "x\u0000", "half": "\ud800"}`)
		r := openReceiver(t, transport, "q", mode)
		d := receive(t, r)
		if in := d.Incoming(); in.Malformed != nil || !maps.Equal(in.Headers.Map(), want) || string(in.Body) != "body" {
			t.Errorf("%v: %q, malformed: %v, want %q", mode, in.Headers.Map(), in.Malformed, want)
		}
		complete(t, d)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	send(t, transport, core.Outgoing{ID: "1", Queue: "q", Headers: core.HeadersFromMap(want)})
	if n := db.count(t, db.table("q")+` where headers::jsonb ->> 'list' = '1;two;false'`); n != "1" {
		t.Errorf("%s rows are JSON for the server, want 1", n)
	}
}
