package workload

import "testing"

func TestSequence_RoundTrip(t *testing.T) {
	list := NewSequences(1234)
	for i := range 1234 {
		if got := SequenceNumber(list.At(i)); got != i {
			t.Fatalf("%q is %d, want %d", list.At(i), got, i)
		}
	}
}
