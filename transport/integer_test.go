package transport_test

import (
	"math"
	"testing"

	"github.com/reprise-go/reprise/transport"
)

func TestInteger(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]int64{
		int64(math.MinInt64): math.MinInt64, int32(-3): -3, int16(-2): -2, int8(-1): -1, 5: 5,
		uint32(math.MaxUint32): math.MaxUint32, uint16(7): 7, uint8(8): 8,
	} {
		if n, ok := transport.Integer(value); !ok || n != want {
			t.Errorf("%T(%v) is %d, %v", value, value, n, ok)
		}
	}
	for _, value := range []any{nil, "1", 1.0, true, uint64(1), uint(1)} {
		if n, ok := transport.Integer(value); ok {
			t.Errorf("%T(%v) is the integer %d", value, value, n)
		}
	}
}
