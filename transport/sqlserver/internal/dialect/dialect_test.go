package dialect

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

func TestBatchSize(t *testing.T) {
	if !slices.IsSorted(BatchSizes) {
		t.Fatalf("%v are not sorted", BatchSizes)
	}
	for n, want := range map[int]int{-1: 1, 0: 1, 1: 1, 5: 4, 6: 6, 7: 6, 511: 384, 512: 512, 100_000: 512} {
		if got := BatchSize(n); got != want {
			t.Errorf("the batch for %d is %d, want %d", n, got, want)
		}
	}
}

func TestNextClaim_BeginsAgainAfterTheLargest(t *testing.T) {
	for claims, want := range map[int]int{0: 1, 1: 2, math.MaxInt32 - 1: math.MaxInt32, math.MaxInt32: 1} {
		if got := (&Row{Claims: claims}).NextClaim(); got != want {
			t.Errorf("after %d comes %d, want %d", claims, got, want)
		}
	}
}

func TestStoredInt(t *testing.T) {
	for n, want := range map[int]int{7: 7, math.MaxInt32: math.MaxInt32, math.MaxInt32 + 1: math.MaxInt32} {
		if got := StoredInt(n); got != want {
			t.Errorf("%d is stored as %d, want %d", n, got, want)
		}
	}
}

func TestText_ReusesItsBuffer(t *testing.T) {
	var text Text
	for _, value := range []any{"a long value", []byte("bytes"), "short", ""} {
		if err := text.Scan(value); err != nil || string(text) != fmt.Sprintf("%s", value) {
			t.Errorf("%q was read as %q, %v", value, text, err)
		}
	}
	if n := cap(text); n < len("a long value") {
		t.Errorf("the buffer was replaced by one of %d bytes", n)
	}
	if err := text.ScanBytes([]byte("pgx")); err != nil || string(text) != "pgx" {
		t.Errorf("%q, %v", text, err)
	}
	if err := text.Scan(7); err == nil || !strings.Contains(err.Error(), "int") {
		t.Errorf("a column of numbers: %v, want an error that names the type", err)
	}
}

func TestRow_WithoutContentsIsACopy(t *testing.T) {
	row := &Row{ID: "a", Headers: Text("headers"), Body: []byte("body"), Claims: 3}
	if c := row.WithoutContents(); c.ID != "a" || c.Claims != 3 || c.Headers != nil || c.Body != nil {
		t.Errorf("%+v, want all but the contents", c)
	}
	if string(row.Headers) != "headers" || string(row.Body) != "body" {
		t.Errorf("the row itself has lost its contents: %+v", row)
	}
}

func TestFault_Transient(t *testing.T) {
	for fault, want := range map[Fault]bool{
		FaultStatement: false, FaultOutage: true, FaultUnreached: true, FaultBusy: true, FaultConflict: true, FaultReadOnly: true, FaultNoTable: false, FaultRefused: false,
	} {
		if got := fault.Transient(); got != want {
			t.Errorf("fault %d is transient: %t", fault, got)
		}
	}
}

func TestConnectionFault_SaysWhetherTheStatementWasSent(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		unsent bool
		want   Fault
	}{
		"unknown":                     {errors.New("broken pipe"), false, FaultOutage},
		"the caller knows":            {errors.New("broken pipe"), true, FaultUnreached},
		"the connection was not made": {fmt.Errorf("begin: %w", &sqlexec.UnreachedError{}), false, FaultUnreached},
		"the driver has sent nothing": {fmt.Errorf("query: %w", driver.ErrBadConn), false, FaultUnreached},
	} {
		if got := ConnectionFault(test.err, test.unsent); got != test.want {
			t.Errorf("%s: fault %d, want %d", name, got, test.want)
		}
	}
}

func TestQuoteWith_NameCannotEndTheQuotation(t *testing.T) {
	for _, test := range []struct{ name, open, end, want string }{
		{`orders`, `"`, `"`, `"orders"`},
		{`or"ders`, `"`, `"`, `"or""ders"`},
		{`or]ders[`, `[`, `]`, `[or]]ders[]`},
	} {
		if got := QuoteWith(test.name, test.open, test.end); got != test.want {
			t.Errorf("%s is quoted as %s, want %s", test.name, got, test.want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, wantText := range map[string]string{
		"orders": "", "12345678": "",
		"": "empty", "a\xff": "UTF-8", "a\x00b": "NUL", "123456789": "9 bytes, but the longest name of a table has 8",
	} {
		err := CheckName("q", name, len(name), 8, "bytes")
		if (err == nil) != (wantText == "") || err != nil && !strings.Contains(err.Error(), wantText) {
			t.Errorf("%q: %v, want %q", name, err, wantText)
		}
	}
}

func TestRightsOn(t *testing.T) {
	table := Table{Name: "orders"}
	if got, want := RightsOn(table, "select", "insert"), []Right{{"select", OnTable, table}, {"insert", OnTable, table}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestStorable(t *testing.T) {
	if got := Storable("a\x00b"); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}
