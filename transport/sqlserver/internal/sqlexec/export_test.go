package sqlexec

import "time"

// SetIdleWait sets how long a statement waits for an idle connection where the server refuses
// another one. Call it before the first statement.
func (d *PgxDatabase) SetIdleWait(wait time.Duration) { d.idleWait = wait }
