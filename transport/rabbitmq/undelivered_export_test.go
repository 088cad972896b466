package rabbitmq

import "time"

// PollUndelivered sets how often the transport looks for undelivered messages. It is
// called before the first receiver is opened.
func (t *Transport) PollUndelivered(every time.Duration) { t.undeliveredPoll = every }
