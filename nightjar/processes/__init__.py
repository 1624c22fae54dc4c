"""Child processes of nightjar: started, supervised, found again and stopped."""
