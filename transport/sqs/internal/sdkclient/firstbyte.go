package sdkclient

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// FirstByte returns a context for a request, and a function that returns afterwards when
// the answer began to arrive. The messages in the answer were locked before that, and a
// large answer takes a while to read.
func FirstByte(ctx context.Context) (context.Context, func() time.Time) {
	var at atomic.Int64
	began := time.Now()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { at.Store(int64(time.Since(began))) },
	})
	return ctx, func() time.Time { return began.Add(time.Duration(at.Load())) }
}
