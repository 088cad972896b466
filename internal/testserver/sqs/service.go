//go:build darwin || linux

package sqs

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/journal"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/queues"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/topics"
)

// A service is all that one run of the server keeps: queues, topics, and the journal of their changes.
type service struct {
	queues  *queues.Store
	topics  *topics.Store
	journal *journal.Journal // nil: no state outlives the run
}

// newService returns the state in the journal of a configuration, or an empty one.
func newService(cfg Config, c *clock.Clock) (*service, error) {
	q := queues.New(queues.Config{
		Region: cfg.Region, Account: cfg.Account, MaxInFlight: cfg.MaxInFlight, MaxWait: cfg.MaxWait,
		CancelledPollsReceive: cfg.CancelledPollsReceive, Clock: c,
	})
	st := &service{queues: q, topics: topics.New(q)}
	st.topics.DelayTopics(cfg.topicDelay)
	st.topics.DelaySubscriptions(cfg.subscriptionDelay)
	if cfg.File == "" {
		return st, nil
	}
	r := queues.NewReplay(q)
	log, err := journal.Open(cfg.File, func(entry []byte) error {
		known, err := r.Apply(entry)
		if err == nil && !known {
			known, err = st.topics.Apply(entry)
		}
		if err == nil && !known {
			var e struct{ Do string }
			err = errors.Join(json.Unmarshal(entry, &e), fmt.Errorf("nothing is known of %q", e.Do))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	st.journal = log
	r.End(log)
	return st, nil
}

// kill ends all activities: the state no longer changes.
func (st *service) kill() { st.queues.Kill() }

// closeFile closes the journal of a killed state.
func (st *service) closeFile() error {
	if st.journal == nil {
		return nil
	}
	return st.journal.Close()
}
