package queues

import "testing"

func TestReceiptHandle_IsOfItsQueueAlone(t *testing.T) {
	t.Parallel()
	r := receipt{queue: 3, serial: 1 << 40, receive: 7}
	h := r.handle()
	if got, ok := parseHandle(h, 3); !ok || got != r {
		t.Errorf("parsed %v, %t, want %v", got, ok, r)
	}
	if _, ok := parseHandle(h, 4); ok {
		t.Error("another queue takes it")
	}
	for i := range len(h) {
		wrong := []byte(h)
		wrong[i] ^= 1
		if _, ok := parseHandle(string(wrong), 3); ok && string(wrong) != h {
			t.Errorf("changed at %d it is taken", i)
		}
	}
	for _, wrong := range []string{"", "AQEB", h + "A", h[1:]} {
		if _, ok := parseHandle(wrong, 3); ok {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestSequenceNumbers_Grow(t *testing.T) {
	t.Parallel()
	last := ""
	for _, n := range []uint64{1, 2, 9, 10, 1 << 20, 1 << 40} {
		s := sequenceNumber(n)
		if len(s) != 20 || s <= last {
			t.Errorf("the sequence number %s after %s", s, last)
		}
		last = s
	}
}
