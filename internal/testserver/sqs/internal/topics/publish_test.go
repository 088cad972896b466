package topics

import "testing"

func TestSequenceNumbers_GrowInTopics(t *testing.T) {
	t.Parallel()
	last := ""
	for _, n := range []uint64{1, 2, 9, 10, 1 << 20, 1 << 40} {
		s := topicSequenceNumber(n)
		if len(s) != 20 || s <= last {
			t.Errorf("the sequence number %s after %s", s, last)
		}
		last = s
	}
}
