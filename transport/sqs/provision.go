package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Provision creates missing queues. For each of the endpoint's own queues it also creates
// one for delays above 15 minutes, "NAME-delay.fifo" (unless Config.NoLongDelays). The service never deletes a queue by itself, so
// Provision and Check refuse a Topology with QueueExpiry.
//
// It changes nothing that exists. A queue that delays all messages, or is encrypted with
// another key than Config.KMSKey, is an error that names both values; so is a queue
// for long delays that cannot be used for them.
func (t *Transport) Provision(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = t.provision(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("sqs: provision: %w", transport.Unavailable(ctx, err, transient))
	}
	return nil
}

// refuseExpiry refuses a Topology whose input queue is to be deleted when it is not used.
func refuseExpiry(topology core.Topology) error {
	if topology.QueueExpiry == 0 {
		return nil
	}
	return transport.Permanent(fmt.Errorf("Config.QueueExpiry of the endpoint is %v, but SQS deletes no queue by itself; remove it, and delete the queue %q when its instance is gone for good", topology.QueueExpiry, topology.InputQueue))
}

func (t *Transport) provision(ctx context.Context, topology core.Topology) error {
	if err := refuseExpiry(topology); err != nil {
		return err
	}
	var errs []error
	for _, name := range topology.Queues {
		address, err := t.cfg.queueAddress(name)
		if err == nil {
			err = t.provisionQueue(ctx, address, name == topology.InputQueue)
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

// provisionQueue creates a queue if it is missing. An own queue is a queue that the
// endpoint receives from.
func (t *Transport) provisionQueue(ctx context.Context, address string, own bool) error {
	attributes := map[string]string{"MessageRetentionPeriod": inSeconds(retention)}
	if isFIFO(address) {
		attributes["FifoQueue"] = "true"
	}
	if err := t.createQueue(ctx, address, attributes, t.compare); err != nil {
		return err
	}
	if !own || t.cfg.NoLongDelays {
		return nil
	}
	return t.createQueue(ctx, delayQueue(address), map[string]string{
		"FifoQueue": "true", "DelaySeconds": inSeconds(maxNativeDelay), "MessageRetentionPeriod": inSeconds(retention),
	}, t.compareDelays)
}

func inSeconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// createQueue creates a queue with attributes, or compares an existing one.
func (t *Transport) createQueue(ctx context.Context, address string, attributes map[string]string, compare func(address string, has map[string]string) error) error {
	_, has, err := t.inspect(ctx, address)
	if err == nil {
		return compare(address, has)
	}
	if !errors.Is(err, core.ErrQueueNotFound) {
		return err
	}
	name := t.cfg.QueuePrefix + address
	if t.cfg.KMSKey != "" {
		attributes["KmsMasterKeyId"] = t.cfg.KMSKey
	}
	_, err = t.sqs.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	switch {
	case err == nil:
		return t.eventually(ctx, func() error {
			_, _, err := t.inspect(ctx, address)
			return err
		})
	case code(err) == "QueueNameExists" || code(err) == "QueueAlreadyExists": // another instance has created it
		if _, has, err := t.inspect(ctx, address); err == nil {
			return compare(address, has)
		}
	}
	return fmt.Errorf("create the queue %q: %w", name, err)
}

// compare returns an error if a queue differs from one that Provision creates in
// attributes that affect receiving.
func (t *Transport) compare(address string, has map[string]string) error {
	var errs []error
	if delay := has["DelaySeconds"]; delay != "" && delay != "0" {
		errs = append(errs, t.mismatch(address, "DelaySeconds", delay, "0"))
	}
	if key := t.cfg.KMSKey; key != "" && has["KmsMasterKeyId"] != key {
		errs = append(errs, t.mismatch(address, "KmsMasterKeyId", has["KmsMasterKeyId"], key))
	}
	return errors.Join(errs...)
}

// compareDelays returns an error if a queue cannot be used for long delays, by the same
// checks as NServiceBus.
func (t *Transport) compareDelays(address string, has map[string]string) error {
	var errs []error
	if want := inSeconds(maxNativeDelay); has["DelaySeconds"] != want {
		errs = append(errs, t.mismatch(address, "DelaySeconds", has["DelaySeconds"], want))
	}
	const limit = 4 * 24 * time.Hour
	if n, err := strconv.Atoi(has["MessageRetentionPeriod"]); err == nil && time.Duration(n)*time.Second < limit {
		errs = append(errs, t.mismatch(address, "MessageRetentionPeriod", has["MessageRetentionPeriod"], inSeconds(retention)))
	}
	if policy := has["RedrivePolicy"]; policy != "" {
		errs = append(errs, t.mismatch(address, "RedrivePolicy", policy, "none"))
	}
	return errors.Join(errs...)
}

func (t *Transport) mismatch(address, attribute, has, want string) error {
	return transport.Permanent(fmt.Errorf("the queue %q has %s %q, and %q is needed; change it with aws sqs set-queue-attributes, or change the configuration to the value of the queue", t.cfg.QueuePrefix+address, attribute, has, want))
}

// examine verifies that an endpoint can receive from a queue, and returns its URL and, if
// it exists, the URL of its queue for long delays.
func (t *Transport) examine(ctx context.Context, address string, maxDeliveries int) (url, delays string, err error) {
	url, has, err := t.inspect(ctx, address)
	if err != nil {
		return "", "", err
	}
	if err := t.checkRedrive(address, has["RedrivePolicy"], maxDeliveries); err != nil {
		return "", "", err
	}
	if !t.cfg.NoLongDelays && !strings.HasSuffix(address, delaySuffix) {
		delays, has, err = t.inspect(ctx, delayQueue(address))
		switch {
		case errors.Is(err, core.ErrQueueNotFound):
			return url, "", nil
		case err != nil:
			return "", "", err
		}
		if err := t.compareDelays(delayQueue(address), has); err != nil {
			return "", "", err
		}
	}
	return url, delays, nil
}

// maxReceiveCount is the highest maxReceiveCount of a redrive policy.
const maxReceiveCount = 1000

// checkRedrive refuses a queue that moves messages to its dead-letter queue before the
// engine has made all its attempts.
func (t *Transport) checkRedrive(address, policy string, maxDeliveries int) error {
	if policy == "" {
		return nil
	}
	var redrive struct {
		MaxReceiveCount json.Number `json:"maxReceiveCount"`
	}
	if err := json.Unmarshal([]byte(policy), &redrive); err != nil {
		return transport.Permanent(fmt.Errorf("the queue %q has a RedrivePolicy that cannot be read: %w", t.cfg.QueuePrefix+address, err))
	}
	count, err := redrive.MaxReceiveCount.Int64()
	if err != nil {
		return transport.Permanent(fmt.Errorf("the queue %q has a RedrivePolicy whose maxReceiveCount cannot be read: %w", t.cfg.QueuePrefix+address, err))
	}
	if count > int64(maxDeliveries) && maxDeliveries > 0 {
		return nil
	}
	need := "is without limit (Recoverability.MaxDeliveries)"
	if maxDeliveries > 0 {
		need = fmt.Sprintf("may deliver a message %d times (Recoverability.MaxDeliveries)", maxDeliveries)
	}
	raise := ""
	if maxDeliveries > 0 && maxDeliveries < maxReceiveCount {
		raise = fmt.Sprintf("raise it to %d, or ", maxReceiveCount)
	}
	return transport.Permanent(fmt.Errorf("the queue %q has a RedrivePolicy with maxReceiveCount %d, and the endpoint %s: SQS would take messages away before they reach the error queue; %sremove it: aws sqs set-queue-attributes --queue-url URL --attributes RedrivePolicy=", t.cfg.QueuePrefix+address, count, need, raise))
}

// Check reaches the service and verifies that all queues of the topology exist, and that
// the endpoint can receive from its own queues, and use the queues for their long delays
// unless Config.NoLongDelays. The redrive policies are checked when the queues are
// opened, since only the endpoint knows how often it delivers a message.
func (t *Transport) Check(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = t.checkAll(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("sqs: check: %w", transport.Unavailable(ctx, err, transient))
	}
	return nil
}

func (t *Transport) checkAll(ctx context.Context, topology core.Topology) error {
	if err := refuseExpiry(topology); err != nil {
		return err
	}
	if len(topology.Queues) == 0 {
		return t.explainedOrNil(t.reach(ctx))
	}
	var errs []error
	for _, name := range topology.Queues {
		address, err := t.cfg.queueAddress(name)
		if err == nil {
			if name == topology.InputQueue {
				err = t.checkOwn(ctx, address)
			} else {
				t.urls.Delete(address)
				_, err = t.queueURL(ctx, address)
			}
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil || transient(err) {
			return t.explained(err) // the other queues would fail in the same way
		}
		errs = append(errs, t.explained(err))
	}
	return errors.Join(errs...)
}

// reach verifies that the service answers to the credentials, by a request about a queue that need
// not exist, and to which they need no right.
func (t *Transport) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := t.cfg.QueuePrefix + "error"
	_, err := t.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	if c := code(err); c == "AccessDenied" || c == "AccessDeniedException" || err != nil && faultOf(err) == faultNoQueue {
		return nil
	}
	return err
}

// checkOwn verifies that an endpoint can receive from a queue, and delay messages to it
// by up to Capabilities.MaxDelay.
func (t *Transport) checkOwn(ctx context.Context, address string) error {
	_, delays, err := t.examine(ctx, address, 1)
	if err != nil || delays != "" || t.cfg.NoLongDelays || strings.HasSuffix(address, delaySuffix) {
		return err
	}
	return fmt.Errorf("%w: %q, in which messages to %q wait that are delayed for more than %v; create it with Provision (Config.Provision of the endpoint), or set NoLongDelays in the Config of package sqs, with which such delays are refused", core.ErrQueueNotFound, t.cfg.QueuePrefix+delayQueue(address), address, maxNativeDelay)
}

func (t *Transport) explainedOrNil(err error) error {
	if err == nil {
		return nil
	}
	return t.explained(err)
}

// Purge implements core.Remover. It receives and deletes messages until none is left: the
// service's own PurgeQueue takes a minute, is allowed once a minute, and removes delayed
// messages too.
func (t *Transport) Purge(ctx context.Context, queue string) (int, error) {
	removed, err := t.purge(ctx, queue)
	if err != nil {
		return 0, fmt.Errorf("sqs: purge %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return removed, nil
}

func (t *Transport) purge(ctx context.Context, queue string) (removed int, err error) {
	if err := t.life.Err(ctx); err != nil {
		return 0, err
	}
	address, err := t.cfg.queueAddress(queue)
	if err != nil {
		return 0, err
	}
	t.urls.Delete(address)
	url, err := t.queueURL(ctx, address)
	if err != nil {
		return 0, err
	}
	for {
		request, cancel := context.WithTimeout(ctx, 2*requestTimeout)
		// With a wait of a second the service asks all of its servers; without a wait it
		// asks only a few.
		out, err := t.sqs.ReceiveMessage(request, &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: receiveBatch, WaitTimeSeconds: 1, VisibilityTimeout: int32(defaultVisibility / time.Second)})
		if err != nil {
			cancel()
			t.forget(address, err)
			return removed, err
		}
		if len(out.Messages) == 0 {
			cancel()
			return removed, nil
		}
		in := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
		for i := range out.Messages {
			id := strconv.Itoa(i)
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: out.Messages[i].ReceiptHandle})
		}
		deleted, err := t.sqs.DeleteMessageBatch(request, in)
		cancel()
		if err != nil {
			return removed, err
		}
		removed += len(deleted.Successful)
	}
}
