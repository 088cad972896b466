package rules

// A Filter selects messages: [TrueFilter], [FalseFilter], [CorrelationFilter] or [SQLFilter].
type Filter interface{ isFilter() }

// TrueFilter selects all messages, as [SQLFilter] with 1=1.
type TrueFilter struct{}

// FalseFilter selects no messages, as [SQLFilter] with 1=0.
type FalseFilter struct{}

// A CorrelationFilter selects messages that have all its properties with equal values
// (page topic-filters).
type CorrelationFilter struct {
	ContentType, CorrelationID, Subject, MessageID, ReplyTo, ReplyToSessionID, SessionID, To *string

	Properties map[string]any // application properties
}

// An SQLFilter selects messages by a condition in the language of page
// service-bus-messaging-sql-filter.
type SQLFilter struct {
	Expression string
	Parameters map[string]any // by name with @
}

// An Action changes the copies of messages that a rule selects, in the language of page
// service-bus-messaging-sql-rule-action.
type Action struct {
	Expression string
	Parameters map[string]any // by name with @
}

func (TrueFilter) isFilter()        {}
func (FalseFilter) isFilter()       {}
func (CorrelationFilter) isFilter() {}
func (SQLFilter) isFilter()         {}
