package queues

import "testing"

func TestQueueURL_Parts(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]string{
		"http://127.0.0.1:4566/123/q":                  {"123", "q"},
		"https://sqs.us-east-1.amazonaws.com/1/q.fifo": {"1", "q.fifo"},
		"q":                    {},
		"http://host":          {},
		"http://host/q":        {},
		"http://host/1/":       {},
		"http://host/1/q/more": {},
	} {
		account, name, ok := splitQueueURL(url)
		if ok != (want[0] != "") || ok && (account != want[0] || name != want[1]) {
			t.Errorf("%s: %q, %q, %t", url, account, name, ok)
		}
	}
}
