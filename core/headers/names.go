// Package headers has the names of the headers of messages, and reads and writes their
// values. A service needs it seldom: to read a header that core does not show, or to look
// at messages in an error queue.
//
// The names are NServiceBus's on purpose, so that endpoints and operator tools of both
// frameworks can share one error queue. Those that begin with "Reprise." are of core alone.
package headers

// The names.
const (
	// On every message that an endpoint sends.
	MessageID              = "NServiceBus.MessageId"
	ConversationID         = "NServiceBus.ConversationId"
	PreviousConversationID = "NServiceBus.PreviousConversationId" // if it differs from the handled message's
	CorrelationID          = "NServiceBus.CorrelationId"
	RelatedTo              = "NServiceBus.RelatedTo"
	MessageIntent          = "NServiceBus.MessageIntent"
	MessageTypes           = "NServiceBus.EnclosedMessageTypes"
	ContentType            = "NServiceBus.ContentType"
	ReplyToAddress         = "NServiceBus.ReplyToAddress"
	ReplyToGroup           = "Reprise.ReplyToGroup" // the group key of a reply, where its sender waits for one
	OriginatingEndpoint    = "NServiceBus.OriginatingEndpoint"
	OriginatingMachine     = "NServiceBus.OriginatingMachine"
	TimeSent               = "NServiceBus.TimeSent"
	DeliverAt              = "NServiceBus.DeliverAt" // with SendOptions.Delay or DeliverAt
	TimeToBeReceived       = "NServiceBus.TimeToBeReceived"
	ControlMessage         = "NServiceBus.ControlMessage"
	ProcessingEndpoint     = "NServiceBus.ProcessingEndpoint"
	ProcessingMachine      = "NServiceBus.ProcessingMachine"
	HostID                 = "$.diagnostics.hostid"
	HostDisplayName        = "$.diagnostics.hostdisplayname"
	ProcessingStarted      = "NServiceBus.ProcessingStarted"
	ProcessingEnded        = "NServiceBus.ProcessingEnded"
	RetryUniqueMessageID   = "ServiceControl.Retry.UniqueMessageId"
	RetryAckQueue          = "ServiceControl.Retry.AcknowledgementQueue"
	RetryAckSent           = "ServiceControl.Retry.AcknowledgementSent"
	RetrySuccessful        = "ServiceControl.Retry.Successful"

	// On a delayed retry: the number of the round, and its time. Retries that handlers
	// requested (core.RetryAfter) leave both unchanged.
	Retries          = "NServiceBus.Retries"
	RetriesTimestamp = "NServiceBus.Retries.Timestamp"

	// Deferrals counts how often a handler deferred the message.
	Deferrals = "Reprise.Deferrals"

	// Failures is on a message that middleware refused (core.Refuse): the number of earlier
	// failed attempts of this round.
	Failures = "Reprise.Failures"

	// Deliveries is on the new copy of a message that was delivered too often,
	// perhaps without a handler, on a broker that counts such deliveries.
	// It is the number of the earlier copy's deliveries.
	Deliveries = "Reprise.Deliveries"

	// GeneratedID is on a copy of a message whose sender gave it no id: the id in
	// NServiceBus.MessageId was generated when it was received (messagekit.SentID).
	GeneratedID = "Reprise.GeneratedMessageId"

	// Undelivered is on a message that waits in the endpoint's own queue until
	// its destination can be reached. The value is JSON.
	Undelivered = "Reprise.Undelivered"

	// Attempts is the trace of a message that failed, which [ParseAttempts] reads.
	Attempts = "Reprise.Attempts"

	// FailureReason is on a message in an error, dead-letter, invalid or custom
	// queue: a [Failure].
	FailureReason = "Reprise.FailureReason"

	// Replay is on a message that an operator's tool returns to its queue: options, separated
	// by commas. The engine removes it at the end: from error queues, audit copies, and
	// messages that are forwarded.
	Replay = "Reprise.Replay"

	// On a report, the control message about a message that was returned with [ReplayReport],
	// beside RetryUniqueMessageID: an [Outcome], and the queue that has the message if it failed.
	// A report of a failure has [Cause], [ExceptionType] and [FailureReason] too.
	ReplayOutcome = "Reprise.Replay.Outcome"
	ReplayQueue   = "Reprise.Replay.Queue"

	// Cause is on a message in an error, dead-letter, invalid or custom queue: a fingerprint
	// such as "1:9f3c21ab77e0". Messages with the same one failed in the same way. The
	// number before the colon is the version of the rules by which errors are compared.
	Cause = "Reprise.Cause"

	// On a message in an error queue: where it failed, when, and why.
	FailedQ             = "NServiceBus.FailedQ"
	TimeOfFailure       = "NServiceBus.TimeOfFailure"
	ExceptionType       = "NServiceBus.ExceptionInfo.ExceptionType"
	ExceptionMessage    = "NServiceBus.ExceptionInfo.Message"
	ExceptionStackTrace = "NServiceBus.ExceptionInfo.StackTrace"
	ExceptionSource     = "NServiceBus.ExceptionInfo.Source"
	ExceptionInnerType  = "NServiceBus.ExceptionInfo.InnerExceptionType"
	HandlerType         = "NServiceBus.ExceptionInfo.Data.Handler type"
	HandlerStartTime    = "NServiceBus.ExceptionInfo.Data.Handler start time"
	HandlerFailureTime  = "NServiceBus.ExceptionInfo.Data.Handler failure time"
	HandledMessageType  = "NServiceBus.ExceptionInfo.Data.Message type"
)

// Options of the header [Replay]. Others are ignored.
const (
	ReplayReport = "report" // the final outcome is reported to RetryAckQueue
	ReplayOnce   = "once"   // a failure is not retried
)

// Values of the header [MessageIntent].
const (
	IntentSend    = "Send"
	IntentPublish = "Publish"
	IntentReply   = "Reply"
)
