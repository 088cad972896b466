package microsoft

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	_ "github.com/reprise-go/reprise/transport/sqlserver/microsoft"
)

// shop is where the tables of these tests are.
var shop = dialect.Location{Catalog: "shop", Schema: "dbo"}

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("𝄞", nameUnits/2) // each is two units
	for name, c := range map[string]struct {
		queue, quoted, address string
	}{
		"plain":                      {"orders", "[shop].[dbo].[orders]", "orders@[dbo]@[shop]"},
		"with dots":                  {"Sales.Orders-7", "[shop].[dbo].[Sales.Orders-7]", "Sales.Orders-7@[dbo]@[shop]"},
		"with a space":               {"my orders", "[shop].[dbo].[my orders]", "my orders@[dbo]@[shop]"},
		"with a bracket":             {"a]b[c", "[shop].[dbo].[a]]b[c]", "a]b[c@[dbo]@[shop]"},
		"with a quotation mark":      {`it's "so"`, `[shop].[dbo].[it's "so"]`, `it's "so"@[dbo]@[shop]`},
		"as long as can be":          {long, "[shop].[dbo].[" + long + "]", long + "@[dbo]@[shop]"},
		"schema":                     {"orders@sales", "[shop].[sales].[orders]", "orders@[sales]@[shop]"},
		"schema in brackets":         {"orders@[sales]", "[shop].[sales].[orders]", "orders@[sales]@[shop]"},
		"schema and catalog":         {"orders@sales@other", "[other].[sales].[orders]", "orders@[sales]@[other]"},
		"as NServiceBus writes it":   {"orders@[sales]@[other]", "[other].[sales].[orders]", "orders@[sales]@[other]"},
		"catalog only":               {"orders@[]@[other]", "[other].[dbo].[orders]", "orders@[dbo]@[other]"},
		"an @ in the schema":         {"orders@[a@b]@[c]", "[c].[a@b].[orders]", "orders@[a@b]@[c]"},
		"brackets in the schema":     {"orders@[a]]b]@[c[]", "[c[].[a]]b].[orders]", "orders@[a]]b]@[c[]"},
		"a bracket without brackets": {"orders@a]b", "[shop].[a]]b].[orders]", "orders@[a]]b]@[shop]"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, queue := range []string{c.queue, c.address} { // which is idempotent
				got, err := Dialect{}.Table(queue, shop)
				if err != nil {
					t.Fatal(err)
				}
				if got.Quoted != c.quoted || got.Address != c.address {
					t.Errorf("%q is %s with the address %s, want %s and %s", queue, got.Quoted, got.Address, c.quoted, c.address)
				}
			}
		})
	}
	if got, err := (Dialect{}).Table("orders", dialect.Location{Catalog: "", Schema: "dbo"}); err != nil || got.Quoted != "[dbo].[orders]" || got.Address != "orders@[dbo]" {
		t.Errorf("without a catalog it is %+v, %v", got, err)
	}
}

func TestIllegalNamesAreRefused(t *testing.T) {
	t.Parallel()
	for name, queue := range map[string]string{
		"empty":                      "",
		"blank":                      " ",
		"without a table":            "@[dbo]",
		"with a NUL":                 "a\x00b",
		"not UTF-8":                  "a\xffb",
		"too long":                   strings.Repeat("a", nameUnits+1),
		"too long in UTF-16":         strings.Repeat("𝄞", nameUnits/2) + "a",
		"of the session":             "#orders",
		"in brackets":                "[orders]",
		"schema empty":               "orders@",
		"schema not closed":          "orders@[dbo",
		"schema closed by its end":   "orders@[dbo]]",
		"text behind the schema":     "orders@[dbo]x",
		"nothing behind the @":       "orders@[dbo]@",
		"four parts":                 "orders@[dbo]@[shop]@[x]",
		"schema too long":            "orders@" + strings.Repeat("a", nameUnits+1),
		"catalog too long":           "orders@[dbo]@" + strings.Repeat("a", nameUnits+1),
		"schema not UTF-8":           "orders@a\xff",
		"a statement for the schema": "orders@[dbo]; drop table x",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := (Dialect{}).Table(queue, shop); err == nil {
				t.Errorf("%q is %s", queue, got.Quoted)
			}
		})
	}
}

// FuzzNames: no part of a name gets out of its brackets, and its address leads
// to the same table.
func FuzzNames(f *testing.F) {
	for _, queue := range []string{"orders", "orders@[sales]@[other]", "a]b", "a@[b]]c]", "'; drop table x --", "a@b@c", "x@[]@[y]"} {
		f.Add(queue)
	}
	f.Fuzz(func(t *testing.T, queue string) {
		got, err := Dialect{}.Table(queue, shop)
		if err != nil {
			return
		}
		rest := got.Quoted
		for i, name := range []string{got.Catalog, got.Schema, got.Name} {
			if i > 0 {
				rest = strings.TrimPrefix(rest, ".")
			}
			inside, ok := strings.CutPrefix(rest, "[")
			end := len(strings.ReplaceAll(name, "]", "]]"))
			if !ok || len(inside) <= end || inside[end] != ']' || strings.ReplaceAll(strings.ReplaceAll(inside[:end], "]]", ""), "]", "") != strings.ReplaceAll(inside[:end], "]]", "") {
				t.Fatalf("%q is %s", queue, got.Quoted)
			}
			rest = inside[end+1:]
		}
		second, err := Dialect{}.Table(got.Address, dialect.Location{Catalog: "elsewhere", Schema: "other"})
		if rest != "" || err != nil || second != got {
			t.Errorf("%q is %+v, but its address %+v, %v", queue, got, second, err)
		}
	})
}

func TestInsertsFewStatements(t *testing.T) {
	t.Parallel()
	table, err := Dialect{}.Table("orders", shop)
	if err != nil {
		t.Fatal(err)
	}
	q := Dialect{}.Queue(table)
	texts := map[string]bool{}
	for _, n := range []int{1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 100, 128, 129, 255, 256, 257, 700} {
		messages := make([]dialect.NewRow, n)
		for i := range messages {
			messages[i] = dialect.NewRow{Headers: fmt.Sprint(i), Body: []byte{}, Delay: time.Second, TTL: time.Second}
		}
		var got []string
		for _, s := range (Dialect{}).Insert(q, messages, false) {
			if s.SQL != "sp_executesql" || len(s.Args) > 2100 {
				t.Fatalf("%d messages are a call of %s with %d arguments", n, s.SQL, len(s.Args))
			}
			texts[s.Args[0].(string)] = true
			for _, arg := range s.Args[2:] {
				if headers, ok := arg.(sql.NamedArg).Value.(mssql.NVarCharMax); ok {
					got = append(got, string(headers))
				}
			}
		}
		want := make([]string, n)
		for i := range want {
			want[i] = messages[i].Headers
		}
		if !slices.Equal(got, want) {
			t.Fatalf("of %d messages these are inserted: %q", n, got)
		}
	}
	if len(texts) != 9 { // of 1, 2, 4, ... 256
		t.Errorf("there are %d statements", len(texts))
	}
}

func TestListOfParameters(t *testing.T) {
	t.Parallel()
	got := Dialect{}.List([]int64{1, 1 << 62}, []int32{2, 3}, []string{`"a"`, "b\\\u2028𝄞"})
	if want := mssql.NVarCharMax(`[[1,2,"\"a\""],[4611686018427387904,3,"b\\\u2028𝄞"]]`); len(got) != 1 || got[0] != want {
		t.Errorf("the list is %v, want %v", got, want)
	}
}
