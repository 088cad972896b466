package header

import (
	"math"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestAppendValue(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 8, 21, 9, 5, 7, 0, time.UTC)
	for _, c := range []struct {
		value any
		want  string
		valid bool
	}{
		{"text", "text", true},
		{"", "", true},
		{"a\xffb", "a\uFFFDb", false},
		{nil, "", true},
		{true, "true", true},
		{false, "false", true},
		{byte(255), "255", true},
		{int8(-128), "-128", true},
		{int16(-300), "-300", true},
		{uint16(65535), "65535", true},
		{int32(-70000), "-70000", true},
		{uint32(4294967295), "4294967295", true},
		{int64(math.MinInt64), "-9223372036854775808", true},
		{int(7), "7", true},
		{float32(0.1), "0.1", true},
		{0.1, "0.1", true},
		{1e21, "1e+21", true},
		{math.NaN(), "NaN", true},
		{math.Inf(-1), "-Inf", true},
		{amqp.Decimal{Scale: 2, Value: 1230}, "12.30", true},
		{amqp.Decimal{Scale: 3, Value: -5}, "-0.005", true},
		{amqp.Decimal{Value: 7}, "7", true},
		{at, "2026-08-21 09:05:07:000000 Z", true},
		{at.In(time.FixedZone("", 3600)), "2026-08-21 09:05:07:000000 Z", true},
		{[]byte("ünder"), "ünder", true},
		{[]byte{}, "", true},
		{[]byte{0xff, 0xfe}, "//4=", true},
		{[]any{}, "", true},
		{[]any{int32(1), "two", nil, true}, "1;two;;true", true},
		{[]any{"a\xff"}, "a\uFFFD", false},
		{amqp.Table{}, "", true},
		{amqp.Table{"b": int32(2), "a": "1", "c": []any{int64(3), amqp.Table{"d": 4.5}}}, "a=1,b=2,c=3;d=4.5", true},
		{amqp.Table{"a\xff": "1"}, "a\uFFFD=1", false},
		{amqp.Table{"a": amqp.Table{"b": "\xff"}, "z": ""}, "a=b=\uFFFD,z=", false},
	} {
		got, valid := AppendValue([]byte("before "), c.value)
		if string(got) != "before "+c.want || valid != c.valid {
			t.Errorf("%T %v is %q, %v, want %q, %v", c.value, c.value, got, valid, c.want, c.valid)
		}
	}
}
