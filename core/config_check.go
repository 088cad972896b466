package core

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// resolvedConfig is a Config with its defaults filled in and its settings checked against
// a transport. A setting that is Off is 0 in it.
type resolvedConfig struct {
	original           Config // as New got it
	config             Config
	wrong              map[string]bool // structs with a field whose value is wrong, by path
	invalid            bool            // the settings for failures have mistakes
	mode               TransactionMode
	rules              rules
	maxDeliveries      int // 0 = no limit
	maxPrefetchBytes   int // less in tests
	isolation          isolationRules
	codec              *bodyCodec
	observers          *observers
	queues             []string // that the endpoint needs
	inputQueue         string   // one of queues; "" if send-only
	groupOrderWarnings []string // reasons why groups are not always in order
	auditAddress       string   // "" without audit
	retryAckAddresses  []string // of Config.RetryAckQueues
	// reducedDefaults lists the defaults that the transport cannot provide (R10).
	reducedDefaults []string
}

// resolve checks everything in c but the names of queues, and returns all errors
// together.
func resolve(c Config, caps Capabilities) (*resolvedConfig, error) {
	var errs validationErrors
	r := &resolvedConfig{original: clone(c), config: clone(c), wrong: map[string]bool{}, maxPrefetchBytes: maxPrefetchBytes}
	visitSettings("", reflect.ValueOf(&r.config).Elem(), func(d declared) {
		if c.SendOnly && !d.sends && !d.value.IsZero() {
			errs.add("%s is set on a send-only endpoint, which receives and handles nothing; remove it, or SendOnly", d.path)
			d.value.SetZero()
		}
		r.checkValue(&errs, d)
		d.resolve()
	})
	checkBaseTypes(&errs, c.BaseTypes)
	var err error
	r.codec, err = newBodyCodec(c.Codec)
	errs.addErr(err)
	r.observers = groupObservers(&errs, slices.Clone(c.Observers), c.SendOnly)

	r.mode = r.config.Transactions
	switch {
	case c.SendOnly:
	case len(caps.Transactions) == 0:
		errs.add("the transport lists no transaction mode in its Capabilities, so nothing can be received from it")
	case c.Transactions == TransactionDefault:
		r.mode = caps.HighestTransaction()
	case !caps.Supports(c.Transactions):
		errs.add("Transactions is %v, which the transport does not have; it has %v", c.Transactions, caps.Transactions)
	}
	r.resolveRecoverability(&errs, caps)
	return r, errors.Join(errs.errs...)
}

// checkValue checks a value, and notes which struct has a wrong one.
func (r *resolvedConfig) checkValue(errs *validationErrors, d declared) {
	before := len(errs.errs)
	d.checkValue(errs)
	if dot := strings.LastIndexByte(d.path, '.'); dot > 0 && len(errs.errs) > before {
		r.wrong[d.path[:dot]] = true
	}
}

// checkTransport refuses settings for which the transport lacks an optional interface.
func (r *resolvedConfig) checkTransport(errs *validationErrors, t Transport) {
	if _, ok := t.(Provisioner); !ok && r.config.Provision == ProvisionAlways {
		errs.add("Provision is Always, but the transport cannot create queues (it is no core.Provisioner); create them yourself and remove it: %w", errors.ErrUnsupported)
	}
	if _, ok := t.(Provisioner); !ok && r.config.QueueExpiry > 0 {
		errs.add("QueueExpiry is %v, but the transport cannot create queues (it is no core.Provisioner); create the queue yourself, with that expiry if the broker has one, and remove it: %w", r.config.QueueExpiry, errors.ErrUnsupported)
	}
}

// resolveQueues checks the names of the endpoint and its queues and collects the queues
// that the endpoint needs.
func (r *resolvedConfig) resolveQueues(errs *validationErrors, name string, t Transport) {
	if r.config.SendOnly {
		return
	}
	address := func(field, queue string) string {
		if trimmed := strings.TrimSpace(queue); trimmed != queue || queue == "" {
			errs.add("%s is %q; a queue's name neither is empty nor begins or ends with white space", field, queue)
			return ""
		}
		if isReservedQueue(queue) {
			errs.add("%s is %q, which stands for a queue of the configuration (core.GiveUpTo); write the name of that queue", field, queue)
			return ""
		}
		canonical, err := t.Address(queue)
		if err != nil {
			errs.add("%s %q cannot be a queue's name: %w", field, queue, err)
		}
		return canonical
	}
	own, input := "", name
	switch {
	case r.config.InputQueue != "":
		input = r.config.InputQueue
		own = address("InputQueue", input)
	case name != "": // New says so
		own = address("the name", name)
	}
	r.rules.ownAddress, r.rules.address = own, t.Address
	r.queues, r.inputQueue = []string{input}, input

	errorQueues := map[string]string{} // addresses, and the field that names each
	errorQueue := func(field, queue string) {
		canonical := address(field, queue)
		switch canonical {
		case "":
			return
		case own:
			errs.add("%s is %q, the endpoint's own queue; failed messages would never leave it", field, canonical)
			return
		}
		if _, named := errorQueues[canonical]; !named {
			errorQueues[canonical] = field
			r.queues = append(r.queues, queue)
		}
	}
	c := r.config.Recoverability
	errorQueue("Recoverability.ErrorQueue", c.ErrorQueue)
	for i, queue := range c.CustomErrorQueues {
		errorQueue(fmt.Sprintf("Recoverability.CustomErrorQueues[%d]", i), queue)
	}
	others := func(prefix string, queues map[string]string) {
		for _, field := range slices.Sorted(maps.Keys(queues)) {
			if queue := queues[field]; queue != "" {
				errorQueue(prefix+field, queue)
			}
		}
	}
	others("Recoverability.", map[string]string{"DeadLetterQueue": c.DeadLetterQueue, "InvalidQueue": c.InvalidQueue})
	for _, messageType := range slices.Sorted(maps.Keys(c.MessageTypes)) {
		own := c.MessageTypes[messageType]
		others(fmt.Sprintf("Recoverability.MessageTypes[%q].", messageType), map[string]string{
			"ErrorQueue": own.ErrorQueue, "DeadLetterQueue": own.DeadLetterQueue, "InvalidQueue": own.InvalidQueue,
		})
	}

	r.resolveRetryAckQueues(address, t)
	if r.config.AuditQueue == "" {
		return
	}
	r.auditAddress = address("AuditQueue", r.config.AuditQueue)
	switch field := errorQueues[r.auditAddress]; {
	case r.auditAddress == "":
	case r.auditAddress == own:
		errs.add("AuditQueue is %q, the endpoint's own queue; messages would go round for ever", r.auditAddress)
	case field != "":
		errs.add("AuditQueue is %q, which is %s too; copies of handled messages would be among the failed ones: name another queue", r.auditAddress, field)
	default:
		r.queues = append(r.queues, r.config.AuditQueue)
	}
}

// defaultRetryAckQueues are the queue of ServiceControl, and that of Reprise's own tools.
var defaultRetryAckQueues = []string{"Particular.ServiceControl", "reprise.outcomes"}

// resolveRetryAckQueues resolves Config.RetryAckQueues. A default that cannot be a queue of
// the transport is left out. address checks a name.
func (r *resolvedConfig) resolveRetryAckQueues(address func(field, queue string) string, t Transport) {
	if r.original.RetryAckQueues == nil {
		r.config.RetryAckQueues = slices.DeleteFunc(slices.Clone(defaultRetryAckQueues), func(queue string) bool {
			_, err := t.Address(queue)
			return err != nil
		})
	}
	for i, queue := range r.config.RetryAckQueues {
		r.retryAckAddresses = append(r.retryAckAddresses, address(fmt.Sprintf("RetryAckQueues[%d]", i), queue))
	}
}

// allowsRetryAck reports whether the endpoint may send acknowledgements to a queue that a
// message names.
func (r *resolvedConfig) allowsRetryAck(queue string) bool {
	canonical, err := r.rules.address(queue)
	return err == nil && slices.Contains(r.retryAckAddresses, canonical)
}

// logWarnings logs the warnings for the user at start-up. handled are the message types
// that have handlers; anyType stands for default ones.
func (r *resolvedConfig) logWarnings(log *slog.Logger, caps Capabilities, handled []string) {
	for _, text := range r.reducedDefaults {
		log.Warn("default retries are off", "reason", text)
	}
	for _, text := range r.groupOrderWarnings {
		log.Warn("the order of a group's messages is not always kept", "reason", text)
	}
	limit := r.config.Recoverability.RateLimit.ConsecutiveFailures
	if immediate := r.maxImmediateRetries(); limit > 0 && limit <= immediate {
		log.Warn("rate limiting can be triggered by a single message: ConsecutiveFailures is not above the number of immediate retries",
			"consecutive_failures", limit, "immediate_retries", immediate)
	}
	if len(handled) == 0 {
		log.Warn("the endpoint has no handlers; every message that it receives will fail")
	}
	for _, messageType := range slices.Sorted(maps.Keys(r.config.Recoverability.MessageTypes)) {
		if !slices.Contains(handled, messageType) && !slices.Contains(handled, anyType) {
			log.Warn("Recoverability.MessageTypes has settings for a message type without a handler; check the spelling", "message_type", messageType)
		}
	}
	if !caps.NativeDeliveryCount && r.mode != TransactionNone && r.maxImmediateRetries() > 0 {
		log.Info("the transport counts deliveries in the memory of this process: with several instances on one queue, attempts multiply by their number, and a restart begins to count again")
	}
}

// checkBaseTypes checks a Config.BaseTypes.
func checkBaseTypes(errs *validationErrors, types map[string][]string) {
	isName := func(name string) bool { return isMessageType(name) && strings.TrimSpace(name) == name }
	for _, messageType := range slices.Sorted(maps.Keys(types)) {
		bases := types[messageType]
		if !isName(messageType) {
			errs.add("BaseTypes: %q cannot be a message type; use UTF-8 text without ';', ',' and white space around it", messageType)
		}
		if len(bases) == 0 {
			errs.add("BaseTypes[%q] names no type; name some, or remove it", messageType)
		}
		for i, base := range bases {
			switch {
			case !isName(base):
				errs.add("BaseTypes[%q][%d]: %q cannot be a message type; use UTF-8 text without ';', ',' and white space around it", messageType, i, base)
			case base == messageType:
				errs.add("BaseTypes[%q][%d] is the type itself; remove it", messageType, i)
			case slices.Contains(bases[:i], base):
				errs.add("BaseTypes[%q] names %q twice; remove one", messageType, base)
			}
		}
	}
}

// effective returns the configuration in force.
func (r *resolvedConfig) effective() Config {
	c := clone(r.original)
	if c.SendOnly {
		return c
	}
	inForce := map[string]reflect.Value{}
	visitSettings("", reflect.ValueOf(&r.config).Elem(), func(d declared) { inForce[d.path] = d.value })
	visitSettings("", reflect.ValueOf(&c).Elem(), func(d declared) {
		if v := inForce[d.path]; d.standard != nil && (d.unused == nil || d.unused(r, "", v.Interface()) == "") {
			d.value.Set(v)
			d.unresolve()
		}
	})
	c.Transactions, c.RetryAckQueues = r.mode, slices.Clone(r.config.RetryAckQueues)
	f := &c.Recoverability
	f.Immediate, f.Delayed = r.rules.config.immediate(), r.rules.config.delayed()
	if r.mode != TransactionNone && r.maxDeliveries < math.MaxInt { // else it follows from the retries
		f.MaxDeliveries = cmp.Or(r.maxDeliveries, Off)
	}
	for messageType, own := range f.MessageTypes {
		config := r.rules.perType[messageType]
		if own.Immediate != (Immediate{}) {
			own.Immediate = config.immediate()
			if own.Immediate.NumberOfRetries != Off { // or it would inherit it
				own.Immediate.Pause = zeroAsOff(own.Immediate.Pause)
			}
		}
		if !own.Delayed.isZero() {
			own.Delayed = config.delayed()
			if own.Delayed.NumberOfRetries != Off { // or it would inherit them
				own.Delayed.Jitter = zeroAsOff(own.Delayed.Jitter)
				if own.Delayed.Delays == nil {
					own.Delayed.Factor, own.Delayed.MaxDelay = zeroAsOff(own.Delayed.Factor), zeroAsOff(own.Delayed.MaxDelay)
				}
			}
		}
		f.MessageTypes[messageType] = own
	}
	return c
}

// immediate returns the settings that are in force.
func (c RecoverabilityConfig) immediate() Immediate {
	n := c.Immediate.MaxNumberOfRetries
	return Immediate{NumberOfRetries: cmp.Or(n, Off), Pause: c.Immediate.Pause, MaxPause: c.Immediate.MaxPause}
}

// delayed returns the settings that are in force.
func (c RecoverabilityConfig) delayed() Delayed {
	n, s := c.Delayed.MaxNumberOfRetries, c.schedule
	switch {
	case n == 0:
		return Delayed{NumberOfRetries: Off}
	case len(s.List) > 0:
		return Delayed{Delays: slices.Clone(s.List), Jitter: s.Jitter}
	}
	return Delayed{NumberOfRetries: n, TimeIncrease: s.Increase, Factor: s.Factor, MaxDelay: s.Ceiling, Jitter: s.Jitter}
}

// offAsZero returns 0 for Off: none, in resolved settings.
func offAsZero[T float64 | time.Duration](value T) T {
	if value == Off {
		return 0
	}
	return value
}

// zeroAsOff is the reverse of offAsZero.
func zeroAsOff[T float64 | time.Duration](value T) T {
	if value == 0 {
		return Off
	}
	return value
}
