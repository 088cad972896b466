package asb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/names"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// Provision creates the queues that are missing, with Config.LockDuration, and with sessions where Config.SessionQueues names them.
// With QueueExpiry in topology (core.Config.QueueExpiry) the service deletes the input queue, with its messages, that long after
// its last receiver and its last sender. It is at least 5 minutes, and a queue with sessions cannot have it.
//
// Provision changes nothing that exists. A queue that requires sessions and should not,
// or the other way round, is an error; so is one that forwards its messages, dead-letters
// them too early, or has another AutoDeleteOnIdle than QueueExpiry. Provision needs the right Manage; with
// Config.NoAdmin it checks that the queues exist, and its error has the commands that
// create them.
func (t *Transport) Provision(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = t.provision(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("asb: provision: %w", transport.Unavailable(ctx, err, transient))
	}
	return nil
}

func (t *Transport) provision(ctx context.Context, topology core.Topology) error {
	if err := t.checkExpiry(topology); err != nil {
		return err
	}
	var errs []error
	for _, name := range topology.Queues {
		expiry := time.Duration(0)
		if name == topology.InputQueue {
			expiry = topology.QueueExpiry
		}
		address, err := t.cfg.names().Target(name)
		switch {
		case err != nil:
		case t.cfg.NoAdmin:
			if err = t.reach(ctx, address); err != nil && faultOf(err) == faultNoEntity {
				err = fmt.Errorf("%w; with Config.NoAdmin nothing is created; to fix: %s", err, t.createCommand(address, expiry))
			}
		default:
			err = t.provisionQueue(ctx, address, expiry)
		}
		if err != nil {
			errs = append(errs, t.explained(err))
			if ctx.Err() != nil || transient(err) {
				break // the other queues would fail in the same way
			}
		}
	}
	return errors.Join(errs...)
}

// minExpiry is the service's least AutoDeleteOnIdle.
const minExpiry = 5 * time.Minute

// checkExpiry refuses a Topology.QueueExpiry that the service does not accept.
func (t *Transport) checkExpiry(topology core.Topology) error {
	if topology.QueueExpiry == 0 {
		return nil
	}
	address, err := t.cfg.names().QueueAddress(topology.InputQueue)
	switch {
	case err != nil:
		return err
	case topology.QueueExpiry < minExpiry:
		return transport.Permanent(fmt.Errorf("Config.QueueExpiry of the endpoint is %v, but Service Bus deletes a queue (AutoDeleteOnIdle) after %v at the earliest; set that at least, or remove it", topology.QueueExpiry, minExpiry))
	case t.cfg.names().KeepsGroups(address):
		// A receiver that waits for a session does not count as one: the service would delete a queue that is in use (azure-service-bus#439).
		return transport.Permanent(fmt.Errorf("Config.QueueExpiry of the endpoint is %v, but the queue %q has sessions, and Service Bus would delete it while a receiver waits for one; remove it, or name the queue so that Config.SessionQueues does not match", topology.QueueExpiry, t.cfg.QueuePrefix+address))
	}
	return nil
}

// provisionQueue creates a queue if it is missing. An expiry of 0 means none.
func (t *Transport) provisionQueue(ctx context.Context, address string, expiry time.Duration) error {
	name := t.cfg.QueuePrefix + address
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	has, err := t.admin.GetQueue(ctx, name, nil)
	if err != nil {
		return fmt.Errorf("look for the queue %q: %w", name, err)
	}
	if has != nil {
		return t.compare(address, expiry, &has.QueueProperties)
	}
	properties := t.queueProperties(address, expiry)
	_, err = t.admin.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: properties})
	if isConflict(err) { // another instance has created it
		if has, err := t.admin.GetQueue(ctx, name, nil); err == nil && has != nil {
			return t.compare(address, expiry, &has.QueueProperties)
		}
	}
	if err != nil {
		return fmt.Errorf("create the queue %q: %w", name, t.cfg.refusedByEmulator(err))
	}
	return nil
}

// refusedByEmulator adds to the refusal of an entity's properties by an emulator that Microsoft's one allows less than the service.
func (c *Config) refusedByEmulator(err error) error {
	if said, ok := errors.AsType[*azcore.ResponseError](err); !ok || said.StatusCode != http.StatusBadRequest || !c.client().IsEmulator() {
		return err
	}
	return fmt.Errorf("%w; to fix: Microsoft's emulator allows MaxDeliveryCount %d and DefaultMessageTimeToLive %s at most; set them in Config.CustomizeQueue and Config.CustomizeSubscription (docs/transports/asb.md)", err, emulatorDeliveries, emulatorTimeToLive)
}

func isConflict(err error) bool {
	said, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && said.StatusCode == http.StatusConflict
}

// queueProperties returns the properties of a queue that Provision creates.
func (t *Transport) queueProperties(address string, expiry time.Duration) *admin.QueueProperties {
	p := &admin.QueueProperties{
		LockDuration:            new(duration(t.cfg.LockDuration)),
		MaxDeliveryCount:        new(int32(maxDeliveryCount)),
		EnableBatchedOperations: new(true),
		RequiresSession:         new(t.cfg.names().KeepsGroups(address)),
	}
	if expiry > 0 {
		p.AutoDeleteOnIdle = new(duration(expiry))
	}
	if t.cfg.CustomizeQueue != nil {
		t.cfg.CustomizeQueue(address, p)
	}
	return p
}

// compare returns an error if a queue differs from one that Provision creates in
// properties that affect receiving.
func (t *Transport) compare(address string, expiry time.Duration, has *admin.QueueProperties) error {
	var errs []error
	if err := t.compareSessions(address, has); err != nil {
		errs = append(errs, err)
	}
	if forward := value(has.ForwardTo); forward != "" {
		errs = append(errs, transport.Permanent(fmt.Errorf("the queue %q forwards its messages: ForwardTo is %q, and Provision would create it with %q; to fix: use that queue, or clear ForwardTo", t.cfg.QueuePrefix+address, forward, "")))
	}
	// A shorter time to live loses waiting messages, in an outage for example.
	if has, wanted := value(has.DefaultMessageTimeToLive), t.timeToLive(address); !isAsLong(has, wanted) {
		errs = append(errs, transport.Permanent(fmt.Errorf("the queue %q has DefaultMessageTimeToLive %s, and Provision would create it with %s; to fix: az servicebus queue update --resource-group GROUP --namespace-name %s --name %s --default-message-time-to-live %s, or set it in Config.CustomizeQueue",
			t.cfg.QueuePrefix+address, has, wanted, t.cfg.namespaceName(), names.ARMName(t.cfg.QueuePrefix+address), wanted)))
	}
	if expiry > 0 {
		wanted := value(t.queueProperties(address, expiry).AutoDeleteOnIdle)
		if has := value(has.AutoDeleteOnIdle); !isSame(has, wanted) {
			errs = append(errs, transport.Permanent(fmt.Errorf("the queue %q has AutoDeleteOnIdle %s, and Provision would create it with %s (Config.QueueExpiry of the endpoint); to fix: az servicebus queue update --resource-group GROUP --namespace-name %s --name %s --auto-delete-on-idle %s, or change QueueExpiry",
				t.cfg.QueuePrefix+address, has, wanted, t.cfg.namespaceName(), names.ARMName(t.cfg.QueuePrefix+address), wanted)))
		}
	}
	return errors.Join(errs...)
}

// isSame reports whether two durations are the same, or neither can be parsed, as forever.
func isSame(a, b string) bool {
	x, _ := parseDuration(a)
	y, _ := parseDuration(b)
	return x == y
}

// forever is the service's default of DefaultMessageTimeToLive.
const forever = "P10675199DT2H48M5.4775807S"

// timeToLive returns the DefaultMessageTimeToLive of a queue that Provision creates.
func (t *Transport) timeToLive(address string) string {
	if ttl := value(t.queueProperties(address, 0).DefaultMessageTimeToLive); ttl != "" {
		return ttl
	}
	return forever
}

// isAsLong reports whether a duration is at least as long as another one. A duration that
// cannot be parsed, such as forever, counts as longer than any other.
func isAsLong(has, wanted string) bool {
	h, ok := parseDuration(has)
	if !ok {
		return true
	}
	w, ok := parseDuration(wanted)
	return ok && h >= w
}

// compareSessions returns an error if a queue requires sessions and should not, or the other way round.
func (t *Transport) compareSessions(address string, has *admin.QueueProperties) error {
	wants, requires := t.cfg.names().KeepsGroups(address), value(has.RequiresSession)
	if wants == requires {
		return nil
	}
	fix := "name it in Config.SessionQueues"
	if wants {
		fix = "remove it from Config.SessionQueues"
	}
	return transport.Permanent(fmt.Errorf("the queue %q has RequiresSession %v, and Provision would create it with %v; to fix: %s, or delete the queue, since the service cannot change that", t.cfg.QueuePrefix+address, requires, wants, fix))
}

// examine verifies that a receiver can work: that its queue exists, and does not
// dead-letter messages before the engine has decided. It also reads the lock duration of
// the queue, and how long its messages live.
func (r *receiver) examine(ctx context.Context, maxDeliveries int) error {
	name, sub := r.t.cfg.names().Source(r.address)
	if err := r.reach(ctx, name); err != nil {
		return err
	}
	if r.t.cfg.NoAdmin {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	has, err := r.t.admin.GetQueue(ctx, name, nil)
	switch {
	case err != nil && faultOf(err) == faultRefused:
		r.t.warnings.Add(fmt.Sprintf("the identity has no right to read the properties of the queue %q, so that its MaxDeliveryCount, sessions and LockDuration are not checked; to fix: grant Manage, or set Config.NoAdmin", name))
		return nil
	case err != nil:
		return fmt.Errorf("read the properties of the queue %q: %w", name, err)
	case has == nil:
		return fmt.Errorf("%w: %q", core.ErrQueueNotFound, name)
	}
	if lock, ok := parseDuration(value(has.LockDuration)); ok {
		r.lock = lock
	}
	if sub != 0 {
		return nil // a dead-letter queue has no limits and no sessions
	}
	r.keepExpired = value(has.DeadLetteringOnMessageExpiration)
	r.timeToLive = longestLife(&has.QueueProperties)
	if err := r.t.compareSessions(r.address, &has.QueueProperties); err != nil {
		return err
	}
	return r.t.checkMaxDeliveries(name, value(has.MaxDeliveryCount), maxDeliveries)
}

// reach verifies that the queue exists and can be received from, and opens the connection.
func (r *receiver) reach(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if r.sessions {
		_, err := listSessions(ctx, r.currentClient(), name)
		return err
	}
	return r.control.do(ctx, "peek", func(ctx context.Context, sdk *azservicebus.Receiver) error {
		return sdkclient.PeekNow(ctx, sdk)
	})
}

// checkMaxDeliveries refuses a queue that moves messages to its dead-letter queue before
// the engine has made all its attempts.
func (t *Transport) checkMaxDeliveries(name string, has int32, maxDeliveries int) error {
	const update = "az servicebus queue update --resource-group GROUP --namespace-name %s --name %s --max-delivery-count %d"
	if has == maxDeliveryCount || maxDeliveries > 0 && int(has) > maxDeliveries {
		ofEmulator := t.cfg.client().IsEmulator() && has == emulatorDeliveries // it allows no more
		if margin := int(has) - maxDeliveries; has != maxDeliveryCount && margin < minReleases && !ofEmulator {
			t.warnings.Add(fmt.Sprintf("the queue %q has MaxDeliveryCount %d, %d above Recoverability.MaxDeliveries, and Service Bus counts messages that are given back unhandled, at a shutdown or a pause for example, too: after %d of that it dead-letters a message that has not failed; to fix: "+update,
				name, has, margin, margin, t.cfg.namespaceName(), names.ARMName(name), max(recommendedDeliveries, maxDeliveries+minReleases)))
		}
		return nil
	}
	need := "is without limit (Recoverability.MaxDeliveries)"
	wanted := maxDeliveryCount
	if maxDeliveries > 0 {
		need = fmt.Sprintf("may deliver a message %d times (Recoverability.MaxDeliveries)", maxDeliveries)
		wanted = max(recommendedDeliveries, maxDeliveries+minReleases)
	}
	err := fmt.Errorf("the queue %q has MaxDeliveryCount %d, and the endpoint %s: Service Bus would dead-letter messages before they reach the error queue; to fix: "+update,
		name, has, need, t.cfg.namespaceName(), names.ARMName(name), wanted)
	if t.cfg.client().IsEmulator() {
		err = fmt.Errorf("%w, or, since Microsoft's emulator allows %d at most: set Recoverability.MaxDeliveries to %d", err, emulatorDeliveries, emulatorDeliveries-1)
	}
	return transport.Permanent(err)
}

// recommendedDeliveries is the highest value that the portal allows.
const recommendedDeliveries = 2000

// minReleases is how often a message may be released unhandled, in addition to its
// failed deliveries, before the service dead-letters it.
const minReleases = 1000

// namespaceName returns the first part of the namespace's host name.
func (c *Config) namespaceName() string {
	name, _, _ := strings.Cut(c.host(), ".")
	return name
}

// createCommand returns the command that creates a queue.
func (t *Transport) createCommand(address string, expiry time.Duration) string {
	command := fmt.Sprintf("az servicebus queue create --resource-group GROUP --namespace-name %s --name %s --lock-duration %s --max-delivery-count %d",
		t.cfg.namespaceName(), names.ARMName(t.cfg.QueuePrefix+address), duration(t.cfg.LockDuration), recommendedDeliveries)
	if t.cfg.names().KeepsGroups(address) {
		command += " --enable-session true"
	}
	if expiry > 0 {
		command += " --auto-delete-on-idle " + duration(expiry)
	}
	return command
}

// duration formats a duration for the service, in ISO 8601.
func duration(d time.Duration) string {
	return "PT" + strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "S"
}

// parseDuration parses an ISO 8601 duration of days, hours, minutes and seconds.
func parseDuration(text string) (time.Duration, bool) {
	days, clock, isTime := strings.Cut(strings.TrimPrefix(text, "P"), "T")
	if !strings.HasPrefix(text, "P") {
		return 0, false
	}
	total := 0.0
	read := func(part *string, unit string, length time.Duration) bool {
		number, remainder, found := strings.Cut(*part, unit)
		if !found {
			return true
		}
		n, err := strconv.ParseFloat(number, 64)
		total += n * float64(length)
		*part = remainder
		return err == nil
	}
	ok := read(&days, "D", 24*time.Hour) && days == ""
	if isTime {
		ok = ok && read(&clock, "H", time.Hour) && read(&clock, "M", time.Minute) && read(&clock, "S", time.Second) && clock == ""
	}
	return time.Duration(total), ok && total < float64(1<<62)
}

// value returns the value that a pointer points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
