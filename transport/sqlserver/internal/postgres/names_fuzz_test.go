package postgres

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

// FuzzTable reads any text as the name or the address of a queue, such as a reply address or
// the address in a subscription: no part of it gets out of its quotes, and its address
// leads to the same table.
func FuzzTable(f *testing.F) {
	for _, queue := range []string{
		"orders", `"sales"."orders"`, `"orders"`, `"a""b"."c"`, `a"b`, `"a"."b"."c"`, `"`, `""`, `"."`, `"a".`, `""."a"`, `"; drop table x --`, "a\x00", "\xff", strings.Repeat("é", 32), strings.Repeat(`"`, 66),
	} {
		f.Add(queue)
	}
	f.Fuzz(func(t *testing.T, queue string) {
		got, err := Dialect{}.Table(queue, dialect.Location{Schema: "public"})
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Errorf("the error is %q", err)
			}
			return
		}
		rest := got.Quoted
		for i, name := range []string{got.Schema, got.Name} {
			if name == "" || len(name) > nameBytes || !utf8.ValidString(name) || strings.Contains(name, "\x00") {
				t.Errorf("%q has the part %q", queue, name)
			}
			if i > 0 {
				rest = strings.TrimPrefix(rest, ".")
			}
			quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
			if !strings.HasPrefix(rest, quoted) {
				t.Fatalf("%q is %s, whose part %q is not quoted", queue, got.Quoted, name)
			}
			rest = rest[len(quoted):]
		}
		second, err := Dialect{}.Table(got.Address, dialect.Location{Schema: "other"})
		if rest != "" || err != nil || second != got {
			t.Errorf("%q is %+v, but its address %+v, %v", queue, got, second, err)
		}
	})
}
