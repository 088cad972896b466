package sqlserver

import (
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/notify"
)

// Statements returns the texts of those on a queue's table, by what they do; a claim is
// that of one message.
func (t *Transport) Statements(queue string) (map[string]string, error) {
	q, err := t.queues.Get(queue)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"claim": t.dialect.Claim(q.QueueTexts, 1, t.lease, time.Time{}, 0, 0).SQL, "complete": q.Complete, "abandon": q.Abandon, "release": q.Release, "renew": q.Renew,
		"contents": q.Contents, "begin": q.Begin, "leased": q.Leased, "fence": q.Fence,
		"take":   t.dialect.Take(q.QueueTexts, 1, time.Time{}).SQL,
		"send":   t.dialect.Insert(q.QueueTexts, make([]dialect.NewRow, 1), false)[0].SQL,
		"notify": notify.Text,
	}, nil
}
