package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/internal/errortype"
)

// setting declares a field of [Config], or of a struct in it: all that the checks need to
// know about it besides its type. How its value is copied, and inherited by a message
// type, follows from its type. The zero setting is that of a field whose 0 is in force as
// it is, and that has no effect on an endpoint that only sends.
type setting struct {
	// standard is the value in force if the field is 0; nil means that it is 0, or follows
	// from other settings.
	standard any
	// off: Off is accepted. It means none, and becomes 0, unless it differsFromZero: where 0
	// means no limit, and in levels of retries, in which it counts as a set field.
	off, differsFromZero bool
	// sends: it has an effect on an endpoint that only sends.
	sends bool
	// wrong returns the rest of the error "FIELD is VALUE" for a value that is refused on any
	// transport, or "". In a list it checks each element.
	wrong func(v any) string
	// unused returns the rest of the error "FIELD is VALUE, but " if the field would have no
	// effect, or "". messageType is the message type whose field it is, or "".
	unused func(r *resolvedConfig, messageType string, v any) string
}

// settings declares each setting that is not a zero setting, by the struct and the name of
// its field. A field of TypeRecoverability is the one of the same name in Recoverability
// or Config.
var settings = map[string]setting{
	"Config.Concurrency": {standard: 16, wrong: valid(func(n int) string {
		if n <= maxConcurrency {
			return ""
		}
		return fmt.Sprintf(", for which as many goroutines would start; use at most %d, or more instances", maxConcurrency)
	})},
	"Config.QueueExpiry":    {off: true},
	"Config.Provision":      {wrong: oneOf("ProvisionAuto, ProvisionAlways, ProvisionNever", ProvisionAuto, ProvisionAlways, ProvisionNever)},
	"Config.SendOnly":       {sends: true},
	"Config.HandlerTimeout": {off: true},
	"Config.DrainTimeout":   {standard: 20 * time.Second, off: true},
	"Config.OutageLimit":    {standard: 2 * time.Minute, off: true},
	"Config.Instance": {sends: true, wrong: valid(func(name string) string {
		if utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
			return ""
		}
		return ", which is not UTF-8 or has control characters; use text on one line"
	})},
	"Config.Codec":          {sends: true},
	"Config.BaseTypes":      {sends: true},
	"Config.SendMiddleware": {sends: true},
	"Config.Observers":      {sends: true},
	"Config.Logger":         {sends: true},

	"Recoverability.ErrorQueue": {standard: "error"},
	"Recoverability.MaxRetryAge": {off: true, unused: func(r *resolvedConfig, messageType string, _ any) string {
		if r.hasDelayedRetries(messageType) {
			return ""
		}
		return "there are no delayed retries to limit; remove it, or set Delayed.NumberOfRetries"
	}},
	"Recoverability.RetryAfterLimit": {standard: time.Hour, off: true, differsFromZero: true, unused: whyNothingIsDeferred},
	"Recoverability.MaxDeliveries": {off: true, differsFromZero: true, unused: func(r *resolvedConfig, _ string, _ any) string {
		if r.mode != TransactionNone {
			return ""
		}
		return "in transaction mode None a message is delivered once; remove it"
	}},
	"Recoverability.RequeueDelay": {standard: time.Second, unused: func(r *resolvedConfig, messageType string, v any) string {
		if text := whyNothingIsDeferred(r, messageType, v); text != "" {
			return text
		}
		if limit := r.rules.caps.MaxDelay; limit > 0 && v.(time.Duration) > limit {
			return fmt.Sprintf("the transport's Capabilities.MaxDelay is %v; use no more", limit)
		}
		return ""
	}},
	"Recoverability.RequeueLimit": {off: true, unused: whyNothingIsDeferred},
	"Recoverability.DeadLetter": {unused: func(r *resolvedConfig, _ string, _ any) string {
		if r.rules.caps.DeadLetter || r.config.Recoverability.DeadLetterQueue != "" {
			return ""
		}
		return "the transport cannot move messages to a dead-letter queue of the broker (Capabilities.DeadLetter); name a queue in Recoverability.DeadLetterQueue, or remove it"
	}},
	"Recoverability.Unrecoverable": {wrong: valid(func(err error) string {
		t, named := err.(errortype.Type)
		if !named || strings.Contains(t.Name, ".") && !strings.ContainsFunc(t.Name, unicode.IsSpace) {
			return ""
		}
		return fmt.Sprintf(" for errors of the type %q, which is no type; write its name with the package, such as \"*fs.PathError\"", t.Name)
	})},

	"Immediate.NumberOfRetries": {off: true, differsFromZero: true},
	"Immediate.Pause":           {off: true, differsFromZero: true},

	"Delayed.NumberOfRetries": {off: true, differsFromZero: true},
	"Delayed.Factor": {off: true, differsFromZero: true, wrong: valid(func(factor float64) string {
		if factor == 0 || factor == Off || factor >= 1 && factor <= 1e6 {
			return ""
		}
		return "; use 1 or more, or 0 for linear growth"
	})},
	"Delayed.MaxDelay": {off: true, differsFromZero: true},
	"Delayed.Delays": {wrong: valid(func(delay time.Duration) string {
		if delay >= 0 {
			return ""
		}
		return "; it cannot be negative"
	})},
	"Delayed.Jitter": {off: true, differsFromZero: true, wrong: valid(func(part float64) string {
		if part == Off || part >= 0 && part <= 1 {
			return ""
		}
		return "; use a part between 0 and 1"
	})},

	"UnacceptableMessageLimit.Window":    {unused: withoutLimit},
	"UnacceptableMessageLimit.OnReached": {unused: withoutLimit},

	"RateLimit.TimeToWait": {standard: time.Second, unused: withoutRateLimit, wrong: valid(func(pause time.Duration) string {
		if pause <= maxTimeToWait {
			return ""
		}
		return fmt.Sprintf(", for which the endpoint would stand still after the outage has ended; use at most %v", maxTimeToWait)
	})},
	"RateLimit.Filter": {unused: withoutRateLimit},
}

func whyNothingIsDeferred(r *resolvedConfig, _ string, _ any) string {
	if r.mode != TransactionNone && r.rules.caps.DelayedDelivery {
		return ""
	}
	return "nothing can be deferred in transaction mode None or without Capabilities.DelayedDelivery; remove it"
}

func withoutLimit(r *resolvedConfig, _ string, _ any) string {
	if r.config.Recoverability.UnacceptableMessageLimit.Count > 0 {
		return ""
	}
	return "without Count there is no limit; set Count to 1 or more, or remove it"
}

func withoutRateLimit(r *resolvedConfig, _ string, _ any) string {
	if r.config.Recoverability.RateLimit.ConsecutiveFailures > 0 {
		return ""
	}
	return "without ConsecutiveFailures there is no rate limiting; set ConsecutiveFailures to 1 or more, or remove it"
}

// valid makes a setting's check of values of one type.
func valid[T any](wrong func(T) string) func(any) string {
	return func(v any) string { return wrong(v.(T)) }
}

// oneOf makes the check of an enumeration, with the names of its constants.
func oneOf[T comparable](names string, all ...T) func(any) string {
	return valid(func(v T) string {
		if slices.Contains(all, v) {
			return ""
		}
		return ", which is none of " + names
	})
}

// declared is a setting with its value in a configuration.
type declared struct {
	setting
	path  string // "Recoverability.RateLimit.TimeToWait"
	value reflect.Value
}

// visitSettings calls f for the settings of a configuration, or of a part of it, in the
// order of their fields. The paths begin with prefix. A struct is visited before its
// fields.
func visitSettings(prefix string, part reflect.Value, f func(declared)) {
	t := part.Type()
	for i := range t.NumField() {
		name, value := t.Field(i).Name, part.Field(i)
		f(declared{settingOf(t.Name(), name), prefix + name, value})
		if value.Kind() == reflect.Struct {
			visitSettings(prefix+name+".", value, f)
		}
	}
}

// settingOf returns the declaration of a field.
func settingOf(owner, field string) setting {
	if owner != reflect.TypeFor[TypeRecoverability]().Name() {
		return settings[owner+"."+field]
	}
	if s, ok := settings["Recoverability."+field]; ok {
		return s
	}
	return settings["Config."+field]
}

// checkValue checks a value, or each element of a list, without the other settings.
func (d declared) checkValue(errs *validationErrors) {
	if d.value.Kind() == reflect.Slice {
		for i := range d.value.Len() {
			declared{d.setting, fmt.Sprintf("%s[%d]", d.path, i), d.value.Index(i)}.checkElement(errs)
		}
		return
	}
	if text := d.whyWrong(); text != "" {
		errs.add("%s is %s%s", d.path, d.text(), text)
	} else if d.isNegative() && !(d.off && d.isOff()) {
		none := ""
		if d.off {
			none = ", core.Off is none"
		}
		errs.add("%s is %v; it cannot be negative (0 is the default%s)", d.path, d.value, none)
	}
}

func (d declared) checkElement(errs *validationErrors) {
	if k := d.value.Kind(); (k == reflect.Func || k == reflect.Interface) && d.value.IsNil() {
		errs.add("%s is nil; remove it", d.path)
	} else if text := d.whyWrong(); text != "" {
		errs.add("%s is %s%s", d.path, d.text(), text)
	}
}

func (d declared) whyWrong() string {
	if d.wrong == nil {
		return ""
	}
	return d.wrong(d.value.Interface())
}

// checkUse refuses a field that is set and would have no effect.
func (d declared) checkUse(errs *validationErrors, r *resolvedConfig, messageType string) {
	if d.unused == nil || d.value.IsZero() || d.isNegative() {
		return
	}
	if text := d.unused(r, messageType, d.value.Interface()); text != "" {
		errs.add("%s is %s, but %s", d.path, d.text(), text)
	}
}

// text is the value in an error.
func (d declared) text() string {
	switch d.value.Kind() {
	case reflect.String:
		return fmt.Sprintf("%q", d.value)
	case reflect.Func, reflect.Interface:
		return "set"
	}
	return fmt.Sprint(d.value)
}

func (d declared) isNegative() bool {
	switch v := d.value.Interface().(type) {
	case int:
		return v < 0
	case time.Duration:
		return v < 0
	case float64:
		return v < 0
	}
	return false
}

func (d declared) isOff() bool {
	return d.value.CanInt() && d.value.Int() == Off || d.value.CanFloat() && d.value.Float() == Off
}

// resolve turns Off into 0, and 0 into the default.
func (d declared) resolve() {
	switch {
	case d.off && d.isOff() && !d.differsFromZero:
		d.value.SetZero()
	case d.standard != nil && d.value.IsZero():
		d.value.Set(reflect.ValueOf(d.standard))
	}
}

// unresolve is the reverse of resolve: the value reads as Off if none is in force.
func (d declared) unresolve() {
	if d.off && d.value.IsZero() {
		d.value.Set(reflect.ValueOf(Off).Convert(d.value.Type()))
	}
}

// shared returns the settings of the endpoint that a message type can have as well.
func (c Config) shared() (all TypeRecoverability) {
	to := reflect.ValueOf(&all).Elem()
	for i := range to.NumField() {
		name := to.Type().Field(i).Name
		from := reflect.ValueOf(c.Recoverability).FieldByName(name)
		if !from.IsValid() {
			from = reflect.ValueOf(c).FieldByName(name)
		}
		to.Field(i).Set(from)
	}
	return all
}

// over returns base with the fields that c has. Lists are added to those of base.
func (c TypeRecoverability) over(base TypeRecoverability) TypeRecoverability {
	merged := base
	own, to := reflect.ValueOf(c), reflect.ValueOf(&merged).Elem()
	for i := range own.NumField() {
		switch own, to := own.Field(i), to.Field(i); own.Kind() {
		case reflect.Struct:
		case reflect.Slice:
			to.Set(reflect.AppendSlice(to.Slice3(0, to.Len(), to.Len()), own))
		default:
			if !own.IsZero() {
				to.Set(own)
			}
		}
	}
	merged.Immediate, merged.Delayed = c.Immediate.over(base.Immediate), c.Delayed.over(base.Delayed)
	return merged
}

// clone copies a configuration with its lists and maps, which the caller may continue to
// write to. Functions, errors and other values behind pointers are the caller's.
func clone[T any](c T) T {
	return deepCopy(reflect.ValueOf(&c).Elem()).Interface().(T)
}

func deepCopy(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	to.Set(v)
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			to.Field(i).Set(deepCopy(v.Field(i)))
		}
	case v.Kind() == reflect.Slice && !v.IsNil():
		to.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			to.Index(i).Set(deepCopy(v.Index(i)))
		}
	case v.Kind() == reflect.Map && !v.IsNil():
		to.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for _, key := range v.MapKeys() {
			to.SetMapIndex(key, deepCopy(v.MapIndex(key)))
		}
	}
	return to
}
