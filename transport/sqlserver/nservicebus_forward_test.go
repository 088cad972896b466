package sqlserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestNServiceBus_TheirDelayedMessageIsForwarded: their endpoints move a message that is due to
// their own input queue first, with the header that says where it is to go from
// there. An endpoint that shares that queue, or has taken it over, finds it there.
func TestNServiceBus_TheirDelayedMessageIsForwarded(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			input, theirs, ours := "input."+mode.String(), "theirs."+mode.String(), "ours."+mode.String()
			db.theirTable(t, input)
			db.theirTable(t, theirs)
			reprise := db.open(t, sqlserver.Config{})
			provision(t, reprise, ours)
			moved := func(n int, destination string) {
				t.Helper()
				headers := map[string]string{headers.MessageID: fmt.Sprint(n), "a": "/\x00\"", "NServiceBus.SqlServer.ForwardDestination": destination}
				text, err := json.Marshal(headers)
				if err != nil {
					t.Fatal(err)
				}
				db.exec(t, on(db.table(input), theirMove), fmt.Sprintf("11111111-1111-4111-8111-11111111111%d", n), string(text), []byte(fmt.Sprint(n)))
			}
			moved(1, db.table(theirs))
			moved(2, db.table(input))
			moved(3, db.table(ours))
			moved(4, db.table("nowhere"))
			moved(5, `"half`)
			moved(6, db.table(theirs))
			db.exec(t, on(db.table(input), theirSend), "11111111-1111-4111-8111-111111111117", nil, `{"NServiceBus.MessageId":"7"}`, []byte("7"))

			r := openReceiver(t, db.open(t, sqlserver.Config{NServiceBusTables: true}), input, mode)
			got := map[string]*core.Incoming{}
			for len(got) < 4 {
				var batch [8]core.Delivery
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				n, err := r.Receive(ctx, batch[:])
				cancel()
				if err != nil {
					t.Fatalf("receive: %v, after %d messages", err, len(got))
				}
				for _, d := range batch[:n] {
					got[d.Incoming().ID] = d.Incoming()
					complete(t, d)
				}
			}
			for id, malformed := range map[string]string{"2": "", "4": "nowhere", "5": `"half`, "7": ""} {
				in := got[id]
				switch {
				case in == nil:
					t.Errorf("message %s was not received", id)
					continue
				case malformed == "" && in.Malformed != nil, malformed != "" && (in.Malformed == nil || !strings.Contains(in.Malformed.Error(), malformed)):
					t.Errorf("message %s is malformed: %v, want %q", id, in.Malformed, malformed)
				case string(in.Body) != id:
					t.Errorf("message %s has the body %q", id, in.Body)
				}
				if destination, ok := in.Headers.Lookup("NServiceBus.SqlServer.ForwardDestination"); ok {
					t.Errorf("message %s still has the header, %s", id, destination)
				}
			}
			for _, want := range []string{"1", "6"} {
				row := db.awaitAsThey(t, db.table(theirs))
				if string(row.body) != want || len(row.headers) != 3 || row.headers["a"] != "/\uFFFD\"" || row.expired != 0 {
					t.Errorf("they got %s %q, want %s", row.body, row.headers, want)
				}
			}
			in := receive(t, openReceiver(t, reprise, ours, core.TransactionNone)).Incoming()
			if in.ID != "3" || in.Headers.Len() != 2 || in.Headers.Get("a") != "/\x00\"" || string(in.Body) != "3" {
				t.Errorf("passed on to a queue of ours: %+v", in)
			}
			for _, queue := range []string{input, theirs, ours} {
				if n := db.count(t, db.table(queue)); n != "0" {
					t.Errorf("%s messages are left in %s", n, queue)
				}
			}
		})
	}
}

// TestNServiceBus_FailedForwardBlocksNoOther: each is handed out, as malformed.
func TestNServiceBus_FailedForwardBlocksNoOther(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	input := db.theirTable(t, "input")
	const lost = 30
	headers := `{"NServiceBus.SqlServer.ForwardDestination":"\"nowhere\".\"q\""}`
	db.exec(t, `insert into `+input+` (id, headers, body) select gen_random_uuid(), $1, '' from generate_series(1, $2::int)`, headers, lost)
	r := openReceiver(t, db.open(t, sqlserver.Config{NServiceBusTables: true}), "input", core.TransactionReceiveOnly)
	received := make(chan core.Delivery)
	for range 4 {
		go func() {
			for {
				var got [1]core.Delivery
				if _, err := r.Receive(t.Context(), got[:]); err != nil {
					return
				}
				received <- got[0]
			}
		}()
	}
	for range lost {
		d := <-received
		if d.Incoming().Malformed == nil {
			t.Errorf("received %+v", d.Incoming())
		}
		complete(t, d)
	}
	if n := db.count(t, input); n != "0" {
		t.Errorf("%s messages are left", n)
	}
}
