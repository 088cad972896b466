package main

import "testing"

var example = table{
	title: "Example",
	head:  []string{"", "messages/s", "× other"},
	rows:  [][]string{{"a|b", "1,000", "1"}, {"longer", "20", "0.02"}},
	aims: []aim{
		{what: "times other", want: 4, got: 5.25},
		{what: "allocations", want: 10, got: 12, ceiling: true},
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
	if got := example.text(); got != want {
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
	if got := example.markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAim_AtTheBoundIsMet(t *testing.T) {
	if !(aim{want: 4, got: 4}).met() || !(aim{want: 10, got: 10, ceiling: true}).met() {
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
		if got := number(value); got != want {
			t.Errorf("number(%v) is %q, want %q", value, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	if got, want := span(-0.034, 0.126), "-3 .. +13 %"; got != want {
		t.Errorf("span is %q, want %q", got, want)
	}
}
