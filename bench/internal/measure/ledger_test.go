package measure

import "testing"

func TestLedger_RefusesUnknownMessages(t *testing.T) {
	for _, sequence := range []string{"", "x", "000000000001"} {
		l := newLedger(1, 0)
		l.expect(1)
		for _, s := range []string{sequence, "000000000000"} {
			if err := l.handle(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.check(); err == nil {
			t.Errorf("%q was accepted", sequence)
		}
	}
}
