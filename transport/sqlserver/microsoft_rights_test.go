package sqlserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

// TestMicrosoft_MissingRightsAreNamed: what the server says is missing is in the error, with
// the statement that grants it.
func TestMicrosoft_MissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	transport, err := New(Config{URL: s.url(), Experimental: MicrosoftSQLServer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close(t.Context()) })
	topology := core.Topology{InputQueue: "orders", Queues: []string{"orders", "error]queue"}}

	if err := transport.Check(t.Context(), topology); err != nil {
		t.Fatalf("where nothing is missing: %v", err)
	}
	asked := s.requests()
	if len(asked) != 1 {
		t.Fatalf("%d statements ask for rights, want 1: %+v", len(asked), asked)
	}
	var args []string
	for i := range len(asked[0].args) {
		args = append(args, fmt.Sprint(asked[0].args[fmt.Sprintf("@p%d", i+1)]))
	}
	want := "[shop].[dbo].[error]]queue] INSERT [shop].[dbo].[orders] SELECT [shop].[dbo].[orders] DELETE"
	if got := strings.Join(args, " "); got != want {
		t.Errorf("it asks for %s, want %s", got, want)
	}

	s.says(asked[0].text, reply{rows: [][]any{{"[app]", 0, ""}, {"[app]", 1, ""}, {"[app]", 2, ""}}})
	err = transport.Check(t.Context(), topology)
	for _, want := range []string{"grant insert on [dbo].[error]]queue] to [app]", "grant select, delete on [dbo].[orders] to [app]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want it to say %q", err, want)
		}
	}

	s.says(asked[0].text, failsWith(8116, 16)) // it was never asked of a real server
	if err := transport.Check(t.Context(), topology); err != nil {
		t.Errorf("where rights cannot be found out: %v", err)
	}
}

// TestMicrosoft_RefusedLoginIsReportedOnce: the login, and not a queue, is refused.
func TestMicrosoft_RefusedLoginIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	transport, err := New(Config{URL: s.url(), Experimental: MicrosoftSQLServer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close(t.Context()) })
	refused := failsWith(18456, 14)
	s.says(transport.dialect.Columns(dialect.Table{Quoted: "any", Location: transport.in}).SQL, refused)
	s.says("select 1", refused)
	err = transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "error", "audit"}})
	if err == nil || strings.Count(err.Error(), "this is error 18456") != 1 {
		t.Errorf("Check = %v, want it to say once that the login failed", err)
	}
}
