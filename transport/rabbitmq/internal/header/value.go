package header

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
)

// Replacement stands for a byte that is not UTF-8.
const Replacement = "\uFFFD"

// AppendValue appends the text of a header's value of another type than string, and reports
// whether all of it was UTF-8. Endpoints write strings; other publishers write any type:
//
//   - an integer or a floating point number in decimal, the latter with as many digits as it
//     needs, with an exponent if that is shorter ("1e+21"), or as NaN, +Inf, -Inf
//   - a decimal number with all of its places ("12.30")
//   - "true" or "false"
//   - a time as NServiceBus writes it in headers, "2006-01-02 15:04:05:000000 Z"
//   - bytes as text if they are UTF-8, otherwise as base64
//   - nothing ("void") as an empty text
//   - an array as its values, separated by semicolons: "1;2;3"
//   - a table as its keys and values, in the order of the keys: "a=1,b=2"
//
// Values within an array or a table are written in the same way. No character is escaped,
// so two values can have the same text. NServiceBus writes arrays, tables and times in this
// way too.
func AppendValue(dst []byte, value any) (text []byte, valid bool) {
	switch v := value.(type) {
	case nil:
		return dst, true
	case string:
		if utf8.ValidString(v) {
			return append(dst, v...), true
		}
		return append(dst, strings.ToValidUTF8(v, Replacement)...), false
	case []byte:
		if utf8.Valid(v) {
			return append(dst, v...), true
		}
		return base64.StdEncoding.AppendEncode(dst, v), true
	case bool:
		return strconv.AppendBool(dst, v), true
	case float32:
		return strconv.AppendFloat(dst, float64(v), 'g', -1, 32), true
	case float64:
		return strconv.AppendFloat(dst, v, 'g', -1, 64), true
	case amqp.Decimal:
		return append(dst, decimal(v)...), true
	case time.Time:
		return append(dst, headers.FormatTime(v)...), true
	case []any:
		return appendArray(dst, v)
	case amqp.Table:
		return appendTable(dst, v)
	default:
		if n, ok := transport.Integer(value); ok {
			return strconv.AppendInt(dst, n, 10), true
		}
		return fmt.Append(dst, v), true // no type that the client library returns
	}
}

func appendArray(dst []byte, values []any) (text []byte, valid bool) {
	valid = true
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ';')
		}
		var good bool
		dst, good = AppendValue(dst, v)
		valid = valid && good
	}
	return dst, valid
}

func appendTable(dst []byte, table amqp.Table) (text []byte, valid bool) {
	valid = true
	for i, key := range slices.Sorted(maps.Keys(table)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		var goodKey, goodValue bool
		dst, goodKey = AppendValue(dst, key)
		dst, goodValue = AppendValue(append(dst, '='), table[key])
		valid = valid && goodKey && goodValue
	}
	return dst, valid
}

// decimal writes the number Value / 10^Scale.
func decimal(d amqp.Decimal) string {
	whole := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.Scale)), nil)
	return new(big.Rat).SetFrac(big.NewInt(int64(d.Value)), whole).FloatString(int(d.Scale))
}
