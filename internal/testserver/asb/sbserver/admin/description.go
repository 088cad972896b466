package admin

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

const (
	connectSchema = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	schemaXSI     = "http://www.w3.org/2001/XMLSchema-instance"
)

// A description is a QueueDescription, TopicDescription or SubscriptionDescription, which have
// most elements in common.
type description struct {
	XMLName   xml.Name
	Schema    string `xml:"xmlns,attr,omitempty"`
	SchemaXSI string `xml:"xmlns:i,attr,omitempty"`

	LockDuration                              *string
	MaxSizeInMegabytes                        *int32
	RequiresDuplicateDetection                *bool
	RequiresSession                           *bool
	DefaultMessageTimeToLive                  *string
	DeadLetteringOnMessageExpiration          *bool
	DeadLetteringOnFilterEvaluationExceptions *bool
	DefaultRuleDescription                    *ruleDescription
	DuplicateDetectionHistoryTimeWindow       *string
	MaxDeliveryCount                          *int32
	EnableBatchedOperations                   *bool
	SizeInBytes                               *int64
	MessageCount                              *int64
	Status                                    *string
	ForwardTo                                 *string
	UserMetadata                              *string
	CreatedAt                                 string `xml:",omitempty"`
	UpdatedAt                                 string `xml:",omitempty"`
	AccessedAt                                string `xml:",omitempty"`
	SupportOrdering                           *bool
	CountDetails                              *countDetails
	SubscriptionCount                         *int
	AutoDeleteOnIdle                          *string
	EnablePartitioning                        *bool
	ForwardDeadLetteredMessagesTo             *string
	MaxMessageSizeInKilobytes                 *int64
	SQLFilterCount                            *int `xml:"SqlFilterCount"`
	CorrelationFilterCount                    *int
}

type countDetails struct {
	ActiveMessageCount, DeadLetterMessageCount, ScheduledMessageCount, TransferMessageCount, TransferDeadLetterMessageCount int
}

// A reading reads the elements of a description, and keeps the first error.
type reading struct {
	d   *description
	err error
}

func (r *reading) duration(name string, value *string) time.Duration {
	if value == nil {
		return 0
	}
	d, err := parseDuration(*value)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w", name, err)
	}
	return d
}

func valueOf[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// queue returns the properties of a queue, with the defaults for elements that are missing.
func (d *description) queue() (properties.Queue, error) {
	r := reading{d: d}
	p := properties.Queue{
		LockDuration:                     r.duration("LockDuration", d.LockDuration),
		MaxDeliveryCount:                 valueOf(d.MaxDeliveryCount),
		DefaultMessageTimeToLive:         r.duration("DefaultMessageTimeToLive", d.DefaultMessageTimeToLive),
		DeadLetteringOnMessageExpiration: valueOf(d.DeadLetteringOnMessageExpiration),
		RequiresSession:                  valueOf(d.RequiresSession),
		RequiresDuplicateDetection:       valueOf(d.RequiresDuplicateDetection),
		DuplicateDetectionWindow:         r.duration("DuplicateDetectionHistoryTimeWindow", d.DuplicateDetectionHistoryTimeWindow),
		ForwardTo:                        valueOf(d.ForwardTo),
		ForwardDeadLetteredMessagesTo:    valueOf(d.ForwardDeadLetteredMessagesTo),
		Status:                           properties.Status(valueOf(d.Status)),
		AutoDeleteOnIdle:                 r.duration("AutoDeleteOnIdle", d.AutoDeleteOnIdle),
		EnablePartitioning:               valueOf(d.EnablePartitioning),
		MaxSizeInMegabytes:               valueOf(d.MaxSizeInMegabytes),
		MaxMessageSizeInKilobytes:        valueOf(d.MaxMessageSizeInKilobytes),
		DisableBatchedOperations:         d.EnableBatchedOperations != nil && !*d.EnableBatchedOperations,
		UserMetadata:                     valueOf(d.UserMetadata),
	}
	return p, r.err
}

func (d *description) topic() (properties.Topic, error) {
	q, err := d.queue()
	return properties.Topic{
		DefaultMessageTimeToLive: q.DefaultMessageTimeToLive, RequiresDuplicateDetection: q.RequiresDuplicateDetection,
		DuplicateDetectionWindow: q.DuplicateDetectionWindow, Status: q.Status, AutoDeleteOnIdle: q.AutoDeleteOnIdle,
		EnablePartitioning: q.EnablePartitioning, SupportOrdering: valueOf(d.SupportOrdering), MaxSizeInMegabytes: q.MaxSizeInMegabytes,
		MaxMessageSizeInKilobytes: q.MaxMessageSizeInKilobytes, DisableBatchedOperations: q.DisableBatchedOperations, UserMetadata: q.UserMetadata,
	}, err
}

func (d *description) subscription() (properties.Subscription, error) {
	q, err := d.queue()
	return properties.Subscription{
		LockDuration: q.LockDuration, MaxDeliveryCount: q.MaxDeliveryCount, DefaultMessageTimeToLive: q.DefaultMessageTimeToLive,
		DeadLetteringOnMessageExpiration: q.DeadLetteringOnMessageExpiration,
		DropOnFilterErrors:               d.DeadLetteringOnFilterEvaluationExceptions != nil && !*d.DeadLetteringOnFilterEvaluationExceptions,
		RequiresSession:                  q.RequiresSession, ForwardTo: q.ForwardTo, ForwardDeadLetteredMessagesTo: q.ForwardDeadLetteredMessagesTo,
		Status: q.Status, AutoDeleteOnIdle: q.AutoDeleteOnIdle, DisableBatchedOperations: q.DisableBatchedOperations, UserMetadata: q.UserMetadata,
	}, err
}

// optionalText returns nil for the empty string: the service leaves the element out.
func optionalText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func newDescription(name string, r broker.Runtime) *description {
	d := &description{XMLName: xml.Name{Local: name}, Schema: connectSchema, SchemaXSI: schemaXSI}
	d.SizeInBytes = new(r.SizeInBytes)
	d.CreatedAt, d.UpdatedAt, d.AccessedAt = timestamp(r.Created), timestamp(r.Updated), timestamp(r.Accessed)
	d.CountDetails = &countDetails{
		ActiveMessageCount: r.Active, DeadLetterMessageCount: r.DeadLetter, ScheduledMessageCount: r.Scheduled,
		TransferDeadLetterMessageCount: r.TransferDeadLetter,
	}
	d.MessageCount = new(int64(r.Active + r.DeadLetter + r.Scheduled + r.TransferDeadLetter))
	return d
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (h *Handler) describeQueue(q broker.QueueInfo) *description {
	d, p := newDescription("QueueDescription", q.Runtime), q.Properties
	d.LockDuration, d.MaxDeliveryCount = new(formatDuration(p.LockDuration)), &p.MaxDeliveryCount
	d.DefaultMessageTimeToLive, d.AutoDeleteOnIdle = new(formatDuration(p.DefaultMessageTimeToLive)), new(formatDuration(p.AutoDeleteOnIdle))
	d.DeadLetteringOnMessageExpiration, d.RequiresSession = &p.DeadLetteringOnMessageExpiration, &p.RequiresSession
	d.RequiresDuplicateDetection, d.DuplicateDetectionHistoryTimeWindow = &p.RequiresDuplicateDetection, new(formatDuration(p.DuplicateDetectionWindow))
	d.ForwardTo, d.ForwardDeadLetteredMessagesTo = h.forward(p.ForwardTo), h.forward(p.ForwardDeadLetteredMessagesTo)
	d.Status, d.EnablePartitioning, d.MaxSizeInMegabytes = new(string(p.Status)), &p.EnablePartitioning, &p.MaxSizeInMegabytes
	d.MaxMessageSizeInKilobytes, d.EnableBatchedOperations = h.messageSize(p.MaxMessageSizeInKilobytes), new(!p.DisableBatchedOperations)
	d.UserMetadata = optionalText(p.UserMetadata)
	return d
}

func (h *Handler) describeTopic(t broker.TopicInfo) (*description, error) {
	d, p := newDescription("TopicDescription", t.Runtime), t.Properties
	d.DefaultMessageTimeToLive, d.AutoDeleteOnIdle = new(formatDuration(p.DefaultMessageTimeToLive)), new(formatDuration(p.AutoDeleteOnIdle))
	d.RequiresDuplicateDetection, d.DuplicateDetectionHistoryTimeWindow = &p.RequiresDuplicateDetection, new(formatDuration(p.DuplicateDetectionWindow))
	d.Status, d.EnablePartitioning, d.MaxSizeInMegabytes = new(string(p.Status)), &p.EnablePartitioning, &p.MaxSizeInMegabytes
	d.MaxMessageSizeInKilobytes, d.EnableBatchedOperations = h.messageSize(p.MaxMessageSizeInKilobytes), new(!p.DisableBatchedOperations)
	d.UserMetadata, d.SupportOrdering, d.SubscriptionCount = optionalText(p.UserMetadata), &p.SupportOrdering, &t.Subscriptions
	d.MessageCount = nil
	sql, correlation, err := h.countFilters(t.Name)
	d.SQLFilterCount, d.CorrelationFilterCount = &sql, &correlation
	return d, err
}

// countFilters counts the filters of a topic. True and false filters "derive from the SQL filter"
// (page topic-filters).
func (h *Handler) countFilters(topic string) (sql, correlation int, err error) {
	subscriptions, err := h.Broker.Subscriptions(topic)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range subscriptions {
		described, err := h.Broker.Rules(topic, s.Name)
		if err != nil {
			return 0, 0, err
		}
		for _, r := range described {
			if _, ok := r.Filter.(rules.CorrelationFilter); ok {
				correlation++
			} else {
				sql++
			}
		}
	}
	return sql, correlation, nil
}

func (h *Handler) describeSubscription(s broker.SubscriptionInfo) *description {
	d, p := newDescription("SubscriptionDescription", s.Runtime), s.Properties
	d.SizeInBytes = nil
	d.LockDuration, d.MaxDeliveryCount = new(formatDuration(p.LockDuration)), &p.MaxDeliveryCount
	d.DefaultMessageTimeToLive, d.AutoDeleteOnIdle = new(formatDuration(p.DefaultMessageTimeToLive)), new(formatDuration(p.AutoDeleteOnIdle))
	d.DeadLetteringOnMessageExpiration, d.RequiresSession = &p.DeadLetteringOnMessageExpiration, &p.RequiresSession
	d.DeadLetteringOnFilterEvaluationExceptions = new(!p.DropOnFilterErrors)
	d.ForwardTo, d.ForwardDeadLetteredMessagesTo = h.forward(p.ForwardTo), h.forward(p.ForwardDeadLetteredMessagesTo)
	d.Status, d.EnableBatchedOperations, d.UserMetadata = new(string(p.Status)), new(!p.DisableBatchedOperations), optionalText(p.UserMetadata)
	return d
}

// forward returns the address to which an entity forwards as "absolute URI" (azservicebus v1.11.0,
// QueueDescription).
func (h *Handler) forward(path string) *string {
	if path == "" || strings.Contains(path, "://") {
		return optionalText(path)
	}
	return new("sb://" + h.Broker.Namespace() + "/" + strings.TrimPrefix(path, "/"))
}

func (h *Handler) messageSize(kilobytes int64) *int64 {
	switch {
	case kilobytes != 0:
		return &kilobytes
	case h.Broker.Tier() == properties.Premium:
		return new(int64(1024))
	}
	return new(int64(256))
}
