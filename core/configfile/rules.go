package configfile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
)

// zeroValueErrors has the settings of core whose 0, or "", stands for a default in Go but
// not in a file. The value "" turns a 0 into [core.Off]; another text is the end of the
// error: the way to fix it.
var zeroValueErrors = map[string]string{
	"Config.Concurrency":                 `write 1 or more, or leave the key out for the default`,
	"Config.QueueExpiry":                 "",
	"Config.HandlerTimeout":              "",
	"Config.DrainTimeout":                "",
	"Config.OutageLimit":                 "",
	"Config.Instance":                    `leave the key out for the default`,
	"Config.InputQueue":                  `leave the key out for the queue with the endpoint's name`,
	"Recoverability.ErrorQueue":          `leave the key out for the default`,
	"Recoverability.DeadLetterQueue":     `leave the key out for the broker's own dead-letter queue`,
	"Recoverability.InvalidQueue":        `leave the key out for none`,
	"Recoverability.MaxRetryAge":         "",
	"Recoverability.RetryAfterLimit":     "",
	"Recoverability.MaxDeliveries":       "",
	"Recoverability.RequeueDelay":        `deferred messages would be redelivered without a pause: write "1ms" or more, or leave the key out for the default`,
	"Recoverability.RequeueLimit":        "",
	"Immediate.NumberOfRetries":          "",
	"Immediate.Pause":                    "",
	"Immediate.MaxPause":                 `write "pause": "0s" for no pauses, or leave the key out for the default`,
	"Delayed.NumberOfRetries":            "",
	"Delayed.TimeIncrease":               `list such delays: "delays": ["0s", "0s"], or leave the key out for the default`,
	"Delayed.Factor":                     "",
	"Delayed.MaxDelay":                   "",
	"Delayed.Jitter":                     "",
	"TypeRecoverability.ErrorQueue":      `leave the key out for the endpoint's`,
	"TypeRecoverability.DeadLetterQueue": `leave the key out for the endpoint's`,
	"TypeRecoverability.InvalidQueue":    `leave the key out for the endpoint's`,
	"TypeRecoverability.HandlerTimeout":  "",
	"TypeRecoverability.MaxRetryAge":     "",
	"TypeRecoverability.RetryAfterLimit": "",
	"TypeRecoverability.RequeueDelay":    `deferred messages would be redelivered without a pause: write "1ms" or more, or leave the key out for the endpoint's`,
	"TypeRecoverability.RequeueLimit":    "",
	"RateLimit.TimeToWait":               `messages would fail without a pause: write "1ms" or more, or leave the key out for the default`,
}

// emptyLists has the settings of core that a file may set to an empty list, which differs
// from the default.
var emptyLists = map[string]bool{"Config.RetryAckQueues": true}

// levels are the levels of retries, whose settings are put over earlier ones together.
var levels = map[reflect.Type]bool{
	reflect.TypeFor[core.Immediate](): true,
	reflect.TypeFor[core.Delayed]():   true,
}

// enumerations has the constants of core that a file names.
var enumerations = map[reflect.Type][]fmt.Stringer{
	reflect.TypeFor[core.TransactionMode](): {core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive, core.TransactionDefault},
	reflect.TypeFor[core.Provisioning]():    {core.ProvisionAuto, core.ProvisionAlways, core.ProvisionNever},
}

// constant returns the constant with the name.
func constant(t reflect.Type, name string) (reflect.Value, bool) {
	for _, c := range enumerations[t] {
		if c.String() == name {
			return reflect.ValueOf(c), true
		}
	}
	return reflect.Value{}, false
}

// isConstant reports whether a value is one of its type's constants.
func isConstant(v reflect.Value) bool {
	return slices.ContainsFunc(enumerations[v.Type()], func(c fmt.Stringer) bool { return c == v.Interface() })
}

// names lists the constants for an error.
func names(t reflect.Type) string {
	var all []string
	for _, c := range enumerations[t] {
		all = append(all, c.String())
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}
