rollback transaction reprise_handler;
while @@trancount > 1 commit transaction;
save transaction reprise_handler;
