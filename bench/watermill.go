package main

import (
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// watermillRetry is the Retry middleware, with Reprise's settings.
func watermillRetry() message.HandlerMiddleware {
	return middleware.Retry{
		MaxRetries:      5,               // Reprise's default
		InitialInterval: time.Nanosecond, // the shortest delay
		MaxInterval:     time.Nanosecond,
		Multiplier:      1,
		Logger:          watermill.NewSlogLogger(discardingLogger()),
	}.Middleware
}

// watermillMessage returns a message with an id that cost nothing to make.
func watermillMessage(sequence string, payload message.Payload) *message.Message {
	m := message.NewMessage(sequence, payload)
	for _, h := range fixedHeaders {
		m.Metadata.Set(h.key, h.value)
	}
	m.Metadata.Set(sequenceHeader, sequence)
	return m
}
