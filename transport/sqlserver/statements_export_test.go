package sqlserver

import "time"

// Statements returns the texts of those on a queue's table, by what they do; a claim is
// that of one message.
func (t *Transport) Statements(queue string) (map[string]string, error) {
	q, err := t.queues.get(queue)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"claim": t.dialect.claim(q.queueTexts, 1, t.lease, time.Time{}, 0, 0).SQL, "complete": q.complete, "abandon": q.abandon, "release": q.release, "renew": q.renew,
		"contents": q.contents, "begin": q.begin, "leased": q.leased, "fence": q.fence,
		"take":   t.dialect.take(q.queueTexts, 1, time.Time{}).SQL,
		"send":   t.dialect.insert(q.queueTexts, make([]newRow, 1), false)[0].SQL,
		"notify": notifyText,
	}, nil
}
