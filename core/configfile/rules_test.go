package configfile

import (
	"reflect"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Each setting of core has a rule for its 0, and each rule has its setting.
func TestRules_AreThoseOfEachSetting(t *testing.T) {
	literal := map[string]bool{ // 0 is the default, and is none
		"UnacceptableMessageLimit.Count": true, "UnacceptableMessageLimit.Window": true, "RateLimit.ConsecutiveFailures": true,
	}
	there := map[string]bool{}
	for _, part := range []any{core.Config{}, core.Recoverability{}, core.Immediate{}, core.Delayed{}, core.TypeRecoverability{}, core.UnacceptableMessageLimit{}, core.RateLimit{}} {
		all, err := fields(reflect.TypeOf(part))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			name := f.owner.Name() + "." + f.name
			there[name] = true
			constants, number := enumerations[f.t], f.t.Kind() == reflect.Int || f.t.Kind() == reflect.Float64 || f.t == reflect.TypeFor[time.Duration]()
			if _, listed := f.zero(); constants == nil && number && !listed && !literal[name] {
				t.Errorf("%s has no rule for 0", name)
			}
			if f.t.Kind() == reflect.Int && f.t.Name() != "int" && constants == nil {
				t.Errorf("%s has no names of its constants", name)
			}
		}
		if _, ok := reflect.TypeOf(part).FieldByName("NumberOfRetries"); ok != levels[reflect.TypeOf(part)] {
			t.Errorf("%T is a level: %v", part, !ok)
		}
	}
	for name := range zeroValueErrors {
		if !there[name] {
			t.Errorf("there is no setting %s", name)
		}
	}
	for name := range emptyLists {
		if !there[name] {
			t.Errorf("there is no setting %s", name)
		}
	}
	for name := range literal {
		if !there[name] {
			t.Errorf("there is no setting %s", name)
		}
	}
}

func TestEnumerations_HaveEveryConstant(t *testing.T) {
	for enumeration, constants := range enumerations {
		for i, c := range constants {
			if !isConstant(reflect.ValueOf(c)) || reflect.TypeOf(c) != enumeration {
				t.Errorf("%v: %v is none of its constants", enumeration, c)
			}
			if read, ok := constant(enumeration, c.String()); !ok || read.Interface() != c {
				t.Errorf("%v is read as %v", c, read)
			}
			if next := reflect.ValueOf(len(constants)).Convert(enumeration); isConstant(next) || next.Interface().(interface{ String() string }).String() != enumeration.Name()+"("+string(rune('0'+len(constants)))+")" {
				t.Errorf("%v has more than %d constants: %v", enumeration, i+1, next)
			}
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string][2]string{
		"ErrorQueue": {"errorQueue", "ERROR_QUEUE"}, "URL": {"url", "URL"}, "HTTPPort": {"httpPort", "HTTP_PORT"}, "UserID": {"userID", "USER_ID"},
		"S3Bucket": {"s3Bucket", "S3_BUCKET"}, "X": {"x", "X"}, "IDs": {"iDs", "I_DS"},
	} {
		if got := [2]string{camelCase(name), variableName(camelCase(name))}; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for key, want := range map[string]string{
		"orders.placed": "ORDERS_PLACED", "Shop.OrderPlaced": "SHOP_ORDER_PLACED", "orders-eu 2": "ORDERS_EU_2", "geändert": "GE_NDERT", "db_url": "DB_URL", "A.b": "A_B",
	} {
		if got := variableName(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}
