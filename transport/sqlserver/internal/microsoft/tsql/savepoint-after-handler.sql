save transaction reprise_sends;
