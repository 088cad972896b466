package core

// Header names. They are NServiceBus's on purpose, so that endpoints and operator tools
// of both frameworks can share one error queue.
const (
	// On every message that an endpoint sends.
	HeaderMessageID              = "NServiceBus.MessageId"
	HeaderConversationID         = "NServiceBus.ConversationId"
	HeaderPreviousConversationID = "NServiceBus.PreviousConversationId" // if it differs from the handled message's
	HeaderCorrelationID          = "NServiceBus.CorrelationId"
	HeaderRelatedTo              = "NServiceBus.RelatedTo"
	HeaderMessageIntent          = "NServiceBus.MessageIntent"
	HeaderMessageTypes           = "NServiceBus.EnclosedMessageTypes"
	HeaderContentType            = "NServiceBus.ContentType"
	HeaderReplyToAddress         = "NServiceBus.ReplyToAddress"
	HeaderOriginatingEndpoint    = "NServiceBus.OriginatingEndpoint"
	HeaderOriginatingMachine     = "NServiceBus.OriginatingMachine"
	HeaderTimeSent               = "NServiceBus.TimeSent"
	HeaderDeliverAt              = "NServiceBus.DeliverAt" // with SendOptions.Delay or DeliverAt
	HeaderTimeToBeReceived       = "NServiceBus.TimeToBeReceived"
	HeaderControlMessage         = "NServiceBus.ControlMessage"
	HeaderProcessingEndpoint     = "NServiceBus.ProcessingEndpoint"
	HeaderProcessingMachine      = "NServiceBus.ProcessingMachine"
	HeaderHostID                 = "$.diagnostics.hostid"
	HeaderHostDisplayName        = "$.diagnostics.hostdisplayname"
	HeaderProcessingStarted      = "NServiceBus.ProcessingStarted"
	HeaderProcessingEnded        = "NServiceBus.ProcessingEnded"
	HeaderRetryUniqueMessageID   = "ServiceControl.Retry.UniqueMessageId"
	HeaderRetryAckQueue          = "ServiceControl.Retry.AcknowledgementQueue"
	HeaderRetryAckSent           = "ServiceControl.Retry.AcknowledgementSent"
	HeaderRetrySuccessful        = "ServiceControl.Retry.Successful"

	// On a delayed retry (R22).
	HeaderRetries          = "NServiceBus.Retries"
	HeaderRetriesTimestamp = "NServiceBus.Retries.Timestamp"

	// On a control message that subscribes to events or unsubscribes (NServiceBus's
	// message-driven subscriptions).
	headerSubscriptionType  = "SubscriptionMessageType"
	headerSubscriberAddress = "NServiceBus.SubscriberAddress"
	intentSubscribe         = "Subscribe"
	intentUnsubscribe       = "Unsubscribe"

	// In the first two a saga of NServiceBus names itself in a request, in the others a
	// reply names its saga.
	headerOriginatingSagaID   = "NServiceBus.OriginatingSagaId"
	headerOriginatingSagaType = "NServiceBus.OriginatingSagaType"
	headerSagaID              = "NServiceBus.SagaId"
	headerSagaType            = "NServiceBus.SagaType"

	// HeaderDeferrals counts how often a handler deferred the message.
	HeaderDeferrals = "Reprise.Deferrals"

	// HeaderFailures is on a message that middleware refused ([Refuse]): the number of
	// earlier failed attempts of this round.
	HeaderFailures = "Reprise.Failures"

	// HeaderDeliveries is on the new copy of a message that was delivered too often,
	// perhaps without a handler, on a broker that counts such deliveries.
	// It is the number of the earlier copy's deliveries (R34).
	HeaderDeliveries = "Reprise.Deliveries"

	// HeaderGeneratedID is on a copy of a message whose sender gave it no id: the id in
	// NServiceBus.MessageId was generated when it was received ([Message.SentID]).
	HeaderGeneratedID = "Reprise.GeneratedMessageId"

	// HeaderUndelivered is on a message that waits in the endpoint's own queue until
	// its destination can be reached (R25). The value is JSON.
	HeaderUndelivered = "Reprise.Undelivered"

	// HeaderAttempts is the decision trace (R33).
	HeaderAttempts = "Reprise.Attempts"

	// HeaderFailureReason is on a message in a dead-letter or invalid queue: a
	// [FailureReason].
	HeaderFailureReason = "Reprise.FailureReason"

	// On a message in an error queue (R23).
	HeaderFailedQ                = "NServiceBus.FailedQ"
	HeaderTimeOfFailure          = "NServiceBus.TimeOfFailure"
	HeaderExceptionType          = "NServiceBus.ExceptionInfo.ExceptionType"
	HeaderExceptionMessage       = "NServiceBus.ExceptionInfo.Message"
	HeaderExceptionStackTrace    = "NServiceBus.ExceptionInfo.StackTrace"
	HeaderExceptionSource        = "NServiceBus.ExceptionInfo.Source"
	HeaderExceptionInnerType     = "NServiceBus.ExceptionInfo.InnerExceptionType"
	HeaderHandlerType            = "NServiceBus.ExceptionInfo.Data.Handler type"
	HeaderHandlerStartTime       = "NServiceBus.ExceptionInfo.Data.Handler start time"
	HeaderHandlerFailureTime     = "NServiceBus.ExceptionInfo.Data.Handler failure time"
	HeaderHandledMessageType     = "NServiceBus.ExceptionInfo.Data.Message type"
	headerExceptionPrefix        = "NServiceBus.ExceptionInfo."
	headerLegacyImmediateRetries = "NServiceBus.FLRetries"
)
