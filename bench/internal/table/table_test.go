package table

import "testing"

var example = Table{
	Title: "Example",
	Head:  []string{"", "messages/s", "× other"},
	Rows:  [][]string{{"a|b", "1,000", "1"}, {"longer", "20", "0.02"}},
	Aims: []Aim{
		{Figure: "times other", Want: 4, Got: 5.25},
		{Figure: "allocations", Want: 10, Got: 12, Ceiling: true},
	},
}

func TestTable_Text(t *testing.T) {
	const want = `
Example
          messages/s  × other
  a|b          1,000        1
  longer          20     0.02
  aim: times other: at least 4, measured 5.25: met
  aim: allocations: at most 10, measured 12: missed
`
	if got := example.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTable_Markdown(t *testing.T) {
	const want = `### Example

|  | messages/s | × other |
|---|---:|---:|
| a\|b | 1,000 | 1 |
| longer | 20 | 0.02 |

- Aim: times other: at least 4, measured 5.25: met
- Aim: allocations: at most 10, measured 12: missed
`
	if got := example.Markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAim_AtTheBoundIsMet(t *testing.T) {
	if !(Aim{Want: 4, Got: 4}).met() || !(Aim{Want: 10, Got: 10, Ceiling: true}).met() {
		t.Error("a figure exactly as wanted counts as missed")
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{
		0:         "0",
		0.0004:    "0",
		0.05:      "0.05",
		0.1234:    "0.123",
		1:         "1",
		1.2345:    "1.23",
		12.34:     "12.3",
		99.96:     "100",
		123.4:     "123",
		999.6:     "1,000",
		1234567.8: "1,234,568",
	} {
		if got := Number(value); got != want {
			t.Errorf("number(%v) is %q, want %q", value, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	if got, want := Span(-0.034, 0.126), "-3 .. +13 %"; got != want {
		t.Errorf("span is %q, want %q", got, want)
	}
}
