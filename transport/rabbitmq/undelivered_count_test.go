package rabbitmq

import (
	"errors"
	"testing"
)

func TestUndelivered_LowerCountsAreRepeated(t *testing.T) {
	t.Parallel()
	failed := errors.New("the channel is closed")
	for name, c := range map[string]struct {
		known  int
		counts []int // -1 is failed
		want   int
		err    error
	}{
		"more than before":                 {2, []int{5}, 5, nil},
		"as many as before":                {5, []int{5}, 5, nil},
		"a queue that has not answered":    {5, []int{0, 5}, 5, nil},
		"it has not answered twice":        {5, []int{0, 0, 6}, 6, nil},
		"an operator has taken them":       {5, []int{0, 0, 0, 0}, 0, nil},
		"an operator has taken some":       {5, []int{3, 3, 3, 3}, 3, nil},
		"the first count fails":            {5, []int{-1}, 0, failed},
		"the connection is lost meanwhile": {5, []int{0, -1}, 0, failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, pauses := 0, 0
			n, err := recount(c.known, func() (int, error) {
				answer := c.counts[asked]
				asked++
				if answer < 0 {
					return 0, failed
				}
				return answer, nil
			}, func() error { pauses++; return nil })
			if n != c.want || !errors.Is(err, c.err) || asked != len(c.counts) || pauses != asked-1 {
				t.Errorf("it is %d, %v after %d counts and %d pauses; want %d, %v after %d", n, err, asked, pauses, c.want, c.err, len(c.counts))
			}
		})
	}
	ended := errors.New("the transport is closed")
	if _, err := recount(5, func() (int, error) { return 0, nil }, func() error { return ended }); !errors.Is(err, ended) {
		t.Errorf("a pause that ends with the transport: %v", err)
	}
}
